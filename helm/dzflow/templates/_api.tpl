{{/* Service and Deployment of the roles that serve REST; call with the root, the role, its values. */}}
{{- define "dzflow.apiRole" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}{{- $values := index . 2 -}}
{{- $ports := include "dzflow.ports" $root | fromJson -}}
{{- $name := printf "%s-%s" (include "dzflow.fullname" $root) $role -}}
{{- $tls := $root.Values.api.tls.secret -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  labels: {{- include "dzflow.labels" (list $root $role) | nindent 4 }}
  {{- with $values.service.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ $values.service.type | default "ClusterIP" }}
  selector: {{- include "dzflow.selector" (list $root $role) | nindent 4 }}
  ports:
    - {name: api, port: {{ $values.service.port }}, targetPort: api, protocol: TCP}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels: {{- include "dzflow.labels" (list $root $role) | nindent 4 }}
spec:
  {{- if not (and (eq $role "api") $values.autoscaling.enabled) }}
  replicas: {{ $values.replicas }}
  {{- end }}
  selector:
    matchLabels: {{- include "dzflow.selector" (list $root $role) | nindent 6 }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  template:
    metadata:
      labels: {{- include "dzflow.labels" (list $root $role) | nindent 8 }}
      annotations:
        {{- include "dzflow.podAnnotations" (list $root $values) | nindent 8 }}
        {{- with include "dzflow.tokensHash" $root }}
        checksum/tokens: {{ . | quote }}
        {{- end }}
    spec:
      {{- include "dzflow.podSpec" (list $root $values $role) | nindent 6 }}
      terminationGracePeriodSeconds: {{ include "dzflow.gracePeriod" $root }}
      containers:
        - name: {{ $role }}
          image: {{ include "dzflow.image" (list $root $root.Values.image) }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [dzflow, up, --only, {{ $role }}, --config, /etc/dzflow/dzflow.yaml]
          env:
            - {name: HOME, value: /tmp}
            - {name: DZFLOW_LISTEN, value: 0.0.0.0}
            - {name: DZFLOW_PORT, value: "{{ $ports.api }}"}
            {{- if $tls }}
            - {name: DZFLOW_TLS__CERT, value: /secrets/api-tls/tls.crt}
            - {name: DZFLOW_TLS__KEY, value: /secrets/api-tls/tls.key}
            {{- end }}
            {{- $names := list "DZFLOW_STREAM_TOKEN" "DZFLOW_ETCD__PASSWORD" "DZFLOW_TOKENS__OPERATOR" }}
            {{- if eq $role "api" }}{{ $names = append $names "DZFLOW_TOKENS__HOSTS" }}{{ end }}
            {{- include "dzflow.secretVariables" (list $root $names) | nindent 12 }}
          {{- if or $root.Values.secrets.variables (and (eq $root.Values.traces.to "storage") $root.Values.traces.storage.credentialsSecret) }}
          envFrom:
            {{- with $root.Values.secrets.variables }}
            - secretRef: {name: {{ . }}}
            {{- end }}
            {{- if and (eq $root.Values.traces.to "storage") $root.Values.traces.storage.credentialsSecret }}
            - secretRef: {name: {{ $root.Values.traces.storage.credentialsSecret }}}
            {{- end }}
          {{- end }}
          ports:
            - {name: api, containerPort: {{ $ports.api }}, protocol: TCP}
          startupProbe:
            httpGet: {path: /healthz, port: api, scheme: {{ ternary "HTTPS" "HTTP" (ne $tls "") }}}
            periodSeconds: 2
            failureThreshold: 90
            timeoutSeconds: 3
          livenessProbe:
            httpGet: {path: /healthz, port: api, scheme: {{ ternary "HTTPS" "HTTP" (ne $tls "") }}}
            periodSeconds: 10
            failureThreshold: 6
            timeoutSeconds: 5
          readinessProbe:
            httpGet: {path: /readyz, port: api, scheme: {{ ternary "HTTPS" "HTTP" (ne $tls "") }}}
            periodSeconds: 2
            failureThreshold: 2
            timeoutSeconds: 3
          resources: {{- toYaml $values.resources | nindent 12 }}
          securityContext: {{- include "dzflow.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            {{- include "dzflow.volumeMounts" (list $root (list "etcd" "streams" "api")) | nindent 12 }}
            {{- if eq $root.Values.traces.to "volume" }}
            - {name: traces, mountPath: /traces}
            {{- end }}
      volumes:
        {{- include "dzflow.volumes" (list $root (list "etcd" "streams" "api")) | nindent 8 }}
        {{- if eq $root.Values.traces.to "volume" }}
        - name: traces
          persistentVolumeClaim: {claimName: {{ include "dzflow.tracesClaim" $root }}}
        {{- end }}
{{- end -}}
