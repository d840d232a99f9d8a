{{/* What the pods of all roles have in common. Call with a list of the root and the role's values. */}}

{{- define "dzflow.podSpec" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}{{- $role := index . 2 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- if and (eq $role "ray-head") (include "dzflow.autoscaler" $root) }}
serviceAccountName: {{ include "dzflow.fullname" $root }}-ray-head
{{- else }}
serviceAccountName: {{ include "dzflow.serviceAccount" $root }}
{{- end }}
automountServiceAccountToken: false
# Kubernetes would add DZFLOW_PORT and the like, which dzflow takes for settings.
enableServiceLinks: false
securityContext: {{- include "dzflow.podSecurity" $root | nindent 2 }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if ne $root.Values.spread "none" }}
# The pods of an update are spread among themselves: those that they replace do not count.
topologySpreadConstraints:
  {{- range $key, $required := dict "kubernetes.io/hostname" (eq $root.Values.spread "required") "topology.kubernetes.io/zone" false }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    # A node that is drained, or does not answer, is none to spread over: its pods go to the others.
    nodeTaintsPolicy: Honor
    whenUnsatisfiable: {{ ternary "DoNotSchedule" "ScheduleAnyway" $required }}
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels: {{- include "dzflow.selector" (list $root $role) | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "dzflow.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.podSecurity.user }}
runAsGroup: {{ .Values.podSecurity.user }}
fsGroup: {{ .Values.podSecurity.user }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "dzflow.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* A hash of the settings that all roles need. The number of configurators concerns only their
supervisors, and that of southbound processes nobody: no other pod has to restart to scale them. */}}
{{- define "dzflow.settingsHash" -}}
{{- omit (include "dzflow.settings" . | fromYaml) "configurators" "southbound" | toYaml | sha256sum -}}
{{- end -}}

{{/* A hash of the tokens that are given; empty if there are none. `derivePassword` is slow (scrypt),
so that nobody who sees the pods can try many tokens. */}}
{{- define "dzflow.tokensHash" -}}
{{- $given := dict "operators" .Values.secrets.operatorTokens "hosts" .Values.secrets.hostTokens -}}
{{- if or $given.operators $given.hosts -}}
{{- derivePassword 1 "long" (toJson $given) .Release.Name .Release.Namespace | sha256sum | trunc 16 -}}
{{- end -}}
{{- end -}}

{{/* Annotations that restart pods when the settings change. */}}
{{- define "dzflow.podAnnotations" -}}
{{- $root := index . 0 -}}{{- $values := index . 1 -}}
checksum/settings: {{ include "dzflow.settingsHash" $root }}
{{- with $values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "dzflow.gracePeriod" -}}
{{- add .Values.drain.delay .Values.drain.time 15 | ceil | int -}}
{{- end -}}

{{/* The secrets of a role as variables; the list after the root names them. */}}
{{- define "dzflow.secretVariables" -}}
{{- $root := index . 0 -}}{{- $names := index . 1 -}}
{{- $known := dict
    "DZFLOW_STREAM_TOKEN" "stream-token"
    "DZFLOW_TOKENS__OPERATOR" "operator-tokens"
    "DZFLOW_TOKENS__HOSTS" "host-tokens"
    "DZFLOW_ETCD__PASSWORD" "etcd-password"
    "DZFLOW_TOKEN" "operator-token" -}}
{{- range $names }}
{{- if and (eq . "DZFLOW_ETCD__PASSWORD") (not (include "dzflow.etcdUser" $root)) }}
{{- else }}
- name: {{ . }}
  valueFrom:
    secretKeyRef:
      name: {{ include "dzflow.secret" $root }}
      key: {{ index $known . }}
      {{- if eq . "DZFLOW_TOKENS__HOSTS" }}
      optional: true
      {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "dzflow.etcdUser" -}}
{{- if .Values.etcd.enabled }}root{{ else }}{{ .Values.etcd.external.user }}{{ end -}}
{{- end -}}

{{- define "dzflow.furtherSecrets" -}}
{{- with .Values.secrets.variables }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end -}}

{{- define "dzflow.podIp" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end -}}

{{/* Volumes: settings, files of TLS, room for data. `files` names those that the role needs. */}}
{{- define "dzflow.volumes" -}}
{{- $root := index . 0 -}}{{- $files := index . 1 -}}
- name: settings
  configMap: {name: {{ include "dzflow.fullname" $root }}-settings}
- name: data
  emptyDir: {}
- name: tmp
  emptyDir: {}
{{- range include "dzflow.tlsFiles" (list $root $files) | fromJsonArray }}
- name: {{ .name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    {{- with .items }}
    items: {{- range . }}
      - {key: {{ . }}, path: {{ . }}}
    {{- end }}
    {{- end }}
{{- end }}
{{- end -}}

{{- define "dzflow.volumeMounts" -}}
{{- $root := index . 0 -}}{{- $files := index . 1 -}}
- {name: settings, mountPath: /etc/dzflow, readOnly: true}
# dzflow makes its own folder below, which belongs to its user.
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
{{- range include "dzflow.tlsFiles" (list $root $files) | fromJsonArray }}
- {name: {{ .name }}, mountPath: /secrets/{{ .name }}, readOnly: true}
{{- end }}
{{- end -}}

{{/* The Secrets that are mounted, as JSON: those of the wanted files that are in use. */}}
{{- define "dzflow.tlsFiles" -}}
{{- $root := index . 0 -}}{{- $values := $root.Values -}}
{{- $found := list -}}
{{- range index . 1 -}}
{{- if and (eq . "etcd") (include "dzflow.etcdSecret" $root) -}}
{{- $found = append $found (dict "name" "etcd-tls" "secret" (include "dzflow.etcdSecret" $root)) -}}
{{- else if and (eq . "streams") $values.streams.tls.enabled -}}
{{- $found = append $found (dict "name" "streams-tls" "secret" (include "dzflow.streamsSecret" $root)) -}}
{{- else if and (eq . "api") $values.api.tls.secret -}}
{{- $found = append $found (dict "name" "api-tls" "secret" $values.api.tls.secret) -}}
{{- else if and (eq . "openflow") $values.southbound.tls.secret -}}
{{- $found = append $found (dict "name" "openflow-tls" "secret" $values.southbound.tls.secret) -}}
{{- else if eq . "ray" -}}
{{- $found = append $found (dict "name" "ray" "secret" (include "dzflow.rayTokenSecret" $root) "items" (list "ray-token")) -}}
{{- if $values.ray.tls.secret -}}
{{- $found = append $found (dict "name" "ray-tls" "secret" $values.ray.tls.secret) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* The settings of what joins Ray from outside, as a client. */}}
{{- define "dzflow.rayClientVariables" -}}
- {name: DZFLOW_RAY__ADDRESS, value: "{{ include "dzflow.rayAddress" . }}"}
- {name: DZFLOW_RAY__NAMESPACE, value: "{{ .Release.Namespace }}-{{ include "dzflow.fullname" . }}"}
- {name: DZFLOW_RAY__TOKEN_PATH, value: /secrets/ray/ray-token}
{{- end -}}

{{/* The environment of everything that uses Ray. */}}
{{- define "dzflow.rayVariables" -}}
- {name: RAY_AUTH_MODE, value: token}
- {name: RAY_AUTH_TOKEN_PATH, value: /secrets/ray/ray-token}
# Configurators do not run at a low priority, and are not killed when others need memory.
- {name: RAY_worker_niceness, value: "0"}
- {name: RAY_memory_monitor_refresh_ms, value: "0"}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
# Clients that have lost the head join again soon, instead of going on with the former connection.
- {name: RAY_CLIENT_RECONNECT_GRACE_PERIOD, value: "5"}
{{- if .Values.ray.tls.secret }}
- {name: RAY_USE_TLS, value: "1"}
- {name: RAY_TLS_SERVER_CERT, value: /secrets/ray-tls/tls.crt}
- {name: RAY_TLS_SERVER_KEY, value: /secrets/ray-tls/tls.key}
- {name: RAY_TLS_CA_CERT, value: /secrets/ray-tls/ca.crt}
{{- end }}
{{- end -}}
