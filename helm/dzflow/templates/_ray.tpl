{{/* Ray's nodes, the same under KubeRay and without it. */}}

{{/* The version of Ray in the image. */}}
{{- define "dzflow.rayVersion" -}}2.60.0{{- end -}}

{{/* The parameters of `ray start` that fix all ports, as JSON; call with the root and the role. */}}
{{- define "dzflow.rayParameters" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- $ports := include "dzflow.ports" $root | fromJson -}}
{{- $found := dict
    "node-manager-port" $ports.rayNodeManager "object-manager-port" $ports.rayObjectManager
    "runtime-env-agent-port" $ports.rayRuntimeEnv "dashboard-agent-grpc-port" $ports.rayAgentGrpc
    "dashboard-agent-listen-port" $ports.rayAgentHttp "metrics-export-port" $ports.rayMetrics
    "min-worker-port" $ports.rayWorkersFirst "max-worker-port" $ports.rayWorkersLast
    "object-store-memory" 83886080 -}}
{{- if eq $role "ray-head" -}}
{{- $_ := merge $found (dict "port" $ports.rayGcs "ray-client-server-port" $ports.rayClient
    "include-dashboard" "false" "num-cpus" $root.Values.ray.head.cpus) -}}
{{- else -}}
{{- $_ := set $found "num-cpus" $root.Values.ray.worker.cpus -}}
{{- end -}}
{{- $texts := dict -}}
{{- range $name, $value := $found -}}
{{- $_ := set $texts $name (toString $value) -}}
{{- end -}}
{{- $texts | toJson -}}
{{- end -}}

{{/* The pod template of a node; call with the root, the role, its values, the command (or empty). */}}
{{- define "dzflow.rayTemplate" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}{{- $values := index . 2 -}}{{- $command := index . 3 -}}
{{- $ports := include "dzflow.ports" $root | fromJson -}}
{{- $claim := include "dzflow.rayClaim" $root -}}
metadata:
  labels: {{- include "dzflow.labels" (list $root $role) | nindent 4 }}
  {{- with $root.Values.ray.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "dzflow.podSpec" (list $root $root.Values.ray $role) | nindent 2 }}
  terminationGracePeriodSeconds: {{ include "dzflow.gracePeriod" $root }}
  containers:
    - name: {{ $role }}
      image: {{ include "dzflow.image" (list $root $root.Values.image) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      {{- with $command }}
      command: {{- range . }}
        - {{ . }}
      {{- end }}
      {{- end }}
      env:
        - {name: HOME, value: /tmp}
        {{- include "dzflow.podIp" $root | nindent 8 }}
        {{- include "dzflow.rayVariables" $root | nindent 8 }}
        {{- if $claim }}
        # A node waits so long for a head that comes back with what it knew.
        - {name: RAY_gcs_rpc_server_reconnect_timeout_s, value: "600"}
        {{- end }}
        # A node that is told to end would wait for its actors to leave by themselves, which they do
        # not. Ray starts them on another node as soon as this one is gone.
        - {name: RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S, value: "0"}
        {{- if and $claim (eq $role "ray-head") }}
        - {name: RAY_gcs_storage, value: rocksdb}
        # Another version of Ray begins with nothing.
        - {name: RAY_gcs_storage_path, value: /var/lib/ray/{{ include "dzflow.rayVersion" $root }}}
        {{- end }}
      ports:
        {{- if eq $role "ray-head" }}
        - {name: gcs-server, containerPort: {{ $ports.rayGcs }}, protocol: TCP}
        - {name: client, containerPort: {{ $ports.rayClient }}, protocol: TCP}
        {{- end }}
        - {name: node-manager, containerPort: {{ $ports.rayNodeManager }}, protocol: TCP}
      # Ray answers gRPC's health checks: the head's store of the cluster, and each node's manager.
      {{- $port := ternary $ports.rayGcs $ports.rayNodeManager (eq $role "ray-head") }}
      {{- $check := printf "grpc: {port: %v}" $port }}
      {{- if $root.Values.ray.tls.secret }}
      {{- $check = printf "tcpSocket: {port: %v}" $port }}
      {{- end }}
      startupProbe:
        {{ $check }}
        periodSeconds: 3
        failureThreshold: 60
        timeoutSeconds: 3
      livenessProbe:
        {{ $check }}
        periodSeconds: 10
        failureThreshold: 6
        timeoutSeconds: 5
      readinessProbe:
        {{ $check }}
        periodSeconds: 5
        failureThreshold: 3
        timeoutSeconds: 3
      resources: {{- toYaml $values.resources | nindent 8 }}
      securityContext: {{- include "dzflow.containerSecurity" $root | nindent 8 }}
      volumeMounts:
        {{- include "dzflow.volumeMounts" (list $root (list "etcd" "streams" "ray")) | nindent 8 }}
        - {name: shm, mountPath: /dev/shm}
        {{- if and $claim (eq $role "ray-head") }}
        - {name: cluster, mountPath: /var/lib/ray}
        {{- end }}
  volumes:
    {{- include "dzflow.volumes" (list $root (list "etcd" "streams" "ray")) | nindent 4 }}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: 256Mi}
    {{- if and $claim (eq $role "ray-head") }}
    - name: cluster
      persistentVolumeClaim: {claimName: {{ $claim }}}
    {{- end }}
    {{- if and (eq $role "ray-head") (include "dzflow.autoscaler" $root) }}
    # Only the autoscaler mounts the token of the service account: Ray runs what its clients send.
    - name: kubernetes
      projected:
        sources:
          - serviceAccountToken: {path: token}
          - configMap:
              name: kube-root-ca.crt
              items: [{key: ca.crt, path: ca.crt}]
          - downwardAPI:
              items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
    {{- end }}
{{- end -}}
