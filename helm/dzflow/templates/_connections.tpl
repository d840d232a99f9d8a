{{/* Who connects to whom, in one place: the NetworkPolicies of both sides follow from it. */}}

{{/* The roles that have pods, as a JSON list. */}}
{{- define "dzflow.roles" -}}
{{- $roles := list "api" "southbound" "configurators" "test" -}}
{{- if .Values.dashboard.enabled }}{{ $roles = append $roles "dashboard" }}{{ end -}}
{{- if eq .Values.dataPlane "emulated" }}{{ $roles = append $roles "network" }}{{ end -}}
{{- if .Values.etcd.enabled }}{{ $roles = concat $roles (list "etcd" "etcd-user") }}{{ end -}}
{{- if eq .Values.ray.mode "external" }}{{ $roles = append $roles "down" -}}
{{- else }}{{ $roles = concat $roles (list "ray-head" "ray-worker") }}{{ end -}}
{{- if ne .Values.spark.mode "none" }}{{ $roles = append $roles "spark" }}{{ end -}}
{{- $roles | toJson -}}
{{- end -}}

{{/* All connections, as a JSON list: from, to (roles, or `external`), first and last port. */}}
{{- define "dzflow.connections" -}}
{{- $values := .Values -}}{{- $ports := include "dzflow.ports" . | fromJson -}}
{{- $roles := include "dzflow.roles" . | fromJsonArray -}}
{{- $ray := ternary (list "external") (list "ray-head" "ray-worker") (eq $values.ray.mode "external") -}}
{{- $all := list -}}

{{- /* etcd */ -}}
{{- $clients := concat (list "api" "dashboard" "southbound" "configurators" "network" "etcd-user" "down") $ray -}}
{{- range $client := $clients -}}
{{- if $values.etcd.enabled -}}
{{- $all = append $all (dict "from" $client "to" "etcd" "first" $ports.etcdClient "last" $ports.etcdClient) -}}
{{- else if ne $client "external" -}}
{{- range $endpoint := $values.etcd.external.endpoints -}}
{{- $port := regexFind "[0-9]+$" $endpoint | int -}}
{{- $all = append $all (dict "from" $client "to" "external" "first" $port "last" $port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $all = append $all (dict "from" "etcd" "to" "etcd" "first" $ports.etcdPeer "last" $ports.etcdPeer) -}}

{{- /* streams */ -}}
{{- range $client := concat (list "api" "dashboard") $ray -}}
{{- $all = append $all (dict "from" $client "to" "southbound" "first" $ports.southboundStreams "last" $ports.southboundStreams) -}}
{{- range $server := $ray -}}
{{- $all = append $all (dict "from" $client "to" $server "first" $ports.streamsFirst "last" $ports.streamsLast) -}}
{{- end -}}
{{- end -}}

{{- /* Ray */ -}}
{{- if eq $values.ray.mode "external" -}}
{{- $port := regexFind "[0-9]+$" $values.ray.external.address | int -}}
{{- range $client := list "configurators" "down" -}}
{{- $all = append $all (dict "from" $client "to" "external" "first" $port "last" $port) -}}
{{- end -}}
{{- else -}}
{{- $all = append $all (dict "from" "configurators" "to" "ray-head" "first" $ports.rayClient "last" $ports.rayClient) -}}
{{- range $client := $ray -}}
{{- $all = append $all (dict "from" $client "to" "ray-head" "first" $ports.rayGcs "last" $ports.rayGcs) -}}
{{- range $server := $ray -}}
{{- $all = append $all (dict "from" $client "to" $server "first" $ports.rayNodeManager "last" $ports.rayMetrics) -}}
{{- $all = append $all (dict "from" $client "to" $server "first" $ports.rayWorkersFirst "last" $ports.rayWorkersLast) -}}
{{- end -}}
{{- end -}}
{{- if $values.ray.worker.maxReplicas -}}
{{- /* Ray's autoscaler, beside the head, asks the Kubernetes API for pods. */ -}}
{{- range $port := list 443 6443 -}}
{{- $all = append $all (dict "from" "ray-head" "to" "external" "first" $port "last" $port) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* switches */ -}}
{{- $all = append $all (dict "from" "network" "to" "southbound" "first" $ports.openflow "last" $ports.openflow) -}}
{{- if eq $values.dataPlane "onos" -}}
{{- $url := get ($values.settings.onos | default dict) "url" | default "http://onos:8181" | urlParse -}}
{{- $port := regexFind "[0-9]+$" $url.host | default (ternary "443" "80" (eq $url.scheme "https")) | int -}}
{{- $all = append $all (dict "from" "southbound" "to" "external" "first" $port "last" $port) -}}
{{- end -}}

{{- /* REST; the hosts of the emulated network are in its pod */ -}}
{{- range $client := list "spark" "test" "network" -}}
{{- $all = append $all (dict "from" $client "to" "api" "first" $ports.api "last" $ports.api) -}}
{{- end -}}

{{- /* traces of requests, and telemetry */ -}}
{{- if eq $values.traces.to "storage" -}}
{{- range $client := list "api" "spark" -}}
{{- range $port := $values.networkPolicy.storagePorts -}}
{{- $all = append $all (dict "from" $client "to" "external" "first" $port "last" $port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $telemetry := $values.settings.telemetry | default dict -}}
{{- if $telemetry.enabled -}}
{{- $url := get $telemetry "endpoint" | default "http://collector:4318" | urlParse -}}
{{- $port := regexFind "[0-9]+$" $url.host | default (ternary "443" "80" (eq $url.scheme "https")) | int -}}
{{- range $client := concat (list "api" "dashboard" "southbound") (without $ray "external") -}}
{{- $all = append $all (dict "from" $client "to" "external" "first" $port "last" $port) -}}
{{- end -}}
{{- end -}}

{{- $present := list -}}
{{- range $all -}}
{{- if and (has .from (append $roles "external")) (has .to (append $roles "external")) (not (and (eq .from "external") (eq .to "external"))) -}}
{{- $present = append $present . -}}
{{- end -}}
{{- end -}}
{{- $present | uniq | toJson -}}
{{- end -}}

{{- define "dzflow.policyPort" -}}
- port: {{ .first }}
  {{- if ne (int .first) (int .last) }}
  endPort: {{ .last }}
  {{- end }}
  protocol: TCP
{{- end -}}
