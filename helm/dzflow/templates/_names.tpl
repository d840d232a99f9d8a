{{/* Names and labels of all objects. */}}

{{- define "dzflow.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The beginning of all names: short, because Ray and StatefulSets add to it. */}}
{{- define "dzflow.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "dzflow.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "dzflow.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels of an object; call with a list of the root and the role. The label `dzflow/role`
selects pods, because KubeRay replaces some of the common labels. */}}
{{- define "dzflow.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "dzflow.name" $root }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: dzflow
{{ include "dzflow.selector" . }}
{{- end -}}

{{- define "dzflow.selector" -}}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
dzflow/role: {{ index . 1 }}
{{- end -}}

{{/* The image of dzflow, or that of the Spark job; call with a list of the root and `.image`. */}}
{{- define "dzflow.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "dzflow.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "dzflow.fullname" .) -}}
{{- end -}}

{{/* Whether Ray's autoscaler runs beside the head. */}}
{{- define "dzflow.autoscaler" -}}
{{- if and (eq .Values.ray.mode "kuberay") .Values.ray.worker.maxReplicas }}yes{{ end -}}
{{- end -}}

{{/* Names of Secrets: those that are given, or those that the chart makes. */}}
{{- define "dzflow.secret" -}}
{{- .Values.secrets.existingSecret | default (printf "%s-secrets" (include "dzflow.fullname" .)) -}}
{{- end -}}

{{- define "dzflow.rayTokenSecret" -}}
{{- if eq .Values.ray.mode "external" -}}
{{- .Values.ray.external.tokenSecret | default (include "dzflow.secret" .) -}}
{{- else -}}
{{- include "dzflow.secret" . -}}
{{- end -}}
{{- end -}}

{{- define "dzflow.streamsSecret" -}}
{{- .Values.streams.tls.secret | default (printf "%s-streams-tls" (include "dzflow.fullname" .)) -}}
{{- end -}}

{{/* The Secret of etcd's clients; empty if they do not use TLS. */}}
{{- define "dzflow.etcdSecret" -}}
{{- if .Values.etcd.enabled -}}
{{- .Values.etcd.tls.clientSecret | default (printf "%s-etcd-client-tls" (include "dzflow.fullname" .)) -}}
{{- else -}}
{{- .Values.etcd.external.tlsSecret -}}
{{- end -}}
{{- end -}}

{{- define "dzflow.etcdMemberSecret" -}}
{{- .Values.etcd.tls.secret | default (printf "%s-tls" (include "dzflow.etcdName" .)) -}}
{{- end -}}

{{- define "dzflow.etcdName" -}}
{{ include "dzflow.fullname" . }}-etcd
{{- end -}}

{{/* The host names of the members of the chart's etcd, as a JSON list. */}}
{{- define "dzflow.etcdHosts" -}}
{{- $hosts := list -}}
{{- range $number := until (int .Values.etcd.replicas) -}}
{{- $name := include "dzflow.etcdName" $ -}}
{{- $hosts = append $hosts (printf "%s-%d.%s.%s.svc" $name $number $name $.Release.Namespace) -}}
{{- end -}}
{{- $hosts | toJson -}}
{{- end -}}

{{- define "dzflow.apiUrl" -}}
{{- $scheme := ternary "https" "http" (ne .Values.api.tls.secret "") -}}
{{ $scheme }}://{{ include "dzflow.fullname" . }}-api:{{ .Values.api.service.port }}
{{- end -}}

{{- define "dzflow.southboundCount" -}}
{{- if eq .Values.dataPlane "onos" }}1{{ else }}{{ .Values.southbound.replicas }}{{ end -}}
{{- end -}}

{{- define "dzflow.tracesClaim" -}}
{{- .Values.traces.volume.existingClaim | default (printf "%s-traces" (include "dzflow.fullname" .)) -}}
{{- end -}}

{{/* The name of Ray's head: KubeRay names the Service after the cluster. */}}
{{- define "dzflow.rayName" -}}
{{ include "dzflow.fullname" . }}-ray
{{- end -}}

{{- define "dzflow.rayHead" -}}
{{ include "dzflow.rayName" . }}-head-svc
{{- end -}}

{{/* The claim of Ray's head; empty if it keeps nothing. */}}
{{- define "dzflow.rayClaim" -}}
{{- if and (ne .Values.ray.mode "external") .Values.ray.head.persistence.enabled -}}
{{ include "dzflow.rayName" . }}-head
{{- end -}}
{{- end -}}

{{- define "dzflow.rayAddress" -}}
{{- if eq .Values.ray.mode "external" -}}
{{ .Values.ray.external.address }}
{{- else -}}
ray://{{ include "dzflow.rayHead" . }}:{{ (include "dzflow.ports" . | fromJson).rayClient }}
{{- end -}}
{{- end -}}

{{/* All ports, in one place. Those of Ray must not be within its range of workers' ports. */}}
{{- define "dzflow.ports" -}}
{{- dict "api" 8080 "openflow" 6653 "probes" 9640 "southboundStreams" 9650
    "streamsFirst" 9651 "streamsLast" 9681
    "etcdClient" 2379 "etcdPeer" 2380 "etcdMetrics" 2381
    "rayGcs" 6379 "rayNodeManager" 6380 "rayObjectManager" 6381 "rayRuntimeEnv" 6382
    "rayAgentGrpc" 6383 "rayAgentHttp" 6384 "rayMetrics" 6385 "rayClient" 10001
    "rayWorkersFirst" 10002 "rayWorkersLast" 10101 | toJson -}}
{{- end -}}
