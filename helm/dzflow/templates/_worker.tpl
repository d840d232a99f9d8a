{{/* The pod template of the roles with probes of their own port: southbound, configurators, network.
Call with the root, the role, its values, the files that it needs, and its variables. */}}
{{- define "dzflow.workerTemplate" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}{{- $values := index . 2 -}}{{- $files := index . 3 -}}
{{- $ports := include "dzflow.ports" $root | fromJson -}}
metadata:
  labels: {{- include "dzflow.labels" (list $root $role) | nindent 4 }}
  annotations:
    {{- include "dzflow.podAnnotations" (list $root $values) | nindent 4 }}
    {{- if eq $role "configurators" }}
    dzflow/count: {{ $values.count | quote }}
    {{- end }}
spec:
  {{- include "dzflow.podSpec" (list $root $values $role) | nindent 2 }}
  terminationGracePeriodSeconds: {{ include "dzflow.gracePeriod" $root }}
  containers:
    - name: {{ $role }}
      image: {{ include "dzflow.image" (list $root $root.Values.image) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: [dzflow, up, --only, {{ $role }}, --config, /etc/dzflow/dzflow.yaml]
      env:
        - {name: HOME, value: /tmp}
        {{- include "dzflow.secretVariables" (list $root (list "DZFLOW_STREAM_TOKEN" "DZFLOW_ETCD__PASSWORD")) | nindent 8 }}
        {{- with index . 4 }}
        {{- . | nindent 8 }}
        {{- end }}
      {{- with include "dzflow.furtherSecrets" $root }}
      {{- . | nindent 6 }}
      {{- end }}
      ports:
        - {name: probes, containerPort: {{ $ports.probes }}, protocol: TCP}
        {{- if eq $role "southbound" }}
        - {name: openflow, containerPort: {{ $ports.openflow }}, protocol: TCP}
        - {name: streams, containerPort: {{ $ports.southboundStreams }}, protocol: TCP}
        {{- end }}
      startupProbe:
        httpGet: {path: /healthz, port: probes}
        periodSeconds: 2
        failureThreshold: 90
        timeoutSeconds: 3
      livenessProbe:
        httpGet: {path: /healthz, port: probes}
        periodSeconds: 10
        failureThreshold: 6
        timeoutSeconds: 5
      readinessProbe:
        httpGet: {path: /readyz, port: probes}
        periodSeconds: 2
        failureThreshold: 2
        timeoutSeconds: 3
      resources: {{- toYaml $values.resources | nindent 8 }}
      securityContext: {{- include "dzflow.containerSecurity" $root | nindent 8 }}
      volumeMounts: {{- include "dzflow.volumeMounts" (list $root $files) | nindent 8 }}
  volumes: {{- include "dzflow.volumes" (list $root $files) | nindent 4 }}
{{- end -}}
