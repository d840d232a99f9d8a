{{/* The settings of dzflow that all roles share, as its settings file. What one role needs, and
secrets, are variables of its pods. */}}

{{- define "dzflow.settings" -}}
{{- $values := .Values -}}{{- $ports := include "dzflow.ports" . | fromJson -}}
{{- $etcd := dict "prefix" $values.etcd.external.prefix -}}
{{- if $values.etcd.enabled -}}
{{- $endpoints := list -}}
{{- range include "dzflow.etcdHosts" . | fromJsonArray -}}
{{- $endpoints = append $endpoints (printf "%s:%v" . $ports.etcdClient) -}}
{{- end -}}
{{- $etcd = dict "endpoints" $endpoints "quota" (int64 $values.etcd.quota)
    "ca" "/secrets/etcd-tls/ca.crt" "cert" "/secrets/etcd-tls/tls.crt" "key" "/secrets/etcd-tls/tls.key" -}}
{{- else -}}
{{- $_ := set $etcd "endpoints" $values.etcd.external.endpoints -}}
{{- if $values.etcd.external.tlsSecret -}}
{{- $_ := set $etcd "ca" "/secrets/etcd-tls/ca.crt" -}}
{{- if $values.etcd.external.clientCertificate -}}
{{- $_ := set $etcd "cert" "/secrets/etcd-tls/tls.crt" -}}
{{- $_ := set $etcd "key" "/secrets/etcd-tls/tls.key" -}}
{{- end -}}
{{- else -}}
{{- $_ := set $etcd "plain" $values.etcd.external.plain -}}
{{- end -}}
{{- end -}}
{{- with include "dzflow.etcdUser" . -}}
{{- $_ := set $etcd "user" . -}}
{{- end -}}
{{- $streams := dict "ports" (printf "%v-%v" $ports.streamsFirst $ports.streamsLast) -}}
{{- if $values.streams.tls.enabled -}}
{{- $_ := merge $streams (dict "cert" "/secrets/streams-tls/tls.crt" "key" "/secrets/streams-tls/tls.key" "ca" "/secrets/streams-tls/ca.crt") -}}
{{- end -}}
{{- $made := dict
    "data_plane" $values.dataPlane
    "configurators" (int $values.configurators.count)
    "southbound" (include "dzflow.southboundCount" . | int)
    "southbound_placed" "outside"
    "data_dir" "/data/dzflow"
    "etcd" $etcd
    "streams" $streams
    "probes" (dict "host" "0.0.0.0" "port" $ports.probes)
    "times" (dict "drain_delay" $values.drain.delay "drain" $values.drain.time)
    "log" (dict "to" "stderr") -}}
{{- if $values.network -}}
{{- $_ := set $made "topology" "/etc/dzflow/network.yaml" -}}
{{- else if $values.topology -}}
{{- $_ := set $made "topology" $values.topology -}}
{{- end -}}
{{- if eq $values.dataPlane "onos" -}}
{{- $_ := set $made "plan" "lpm" -}}
{{- end -}}
{{- if or $values.southbound.tls.allowPlain (eq $values.dataPlane "emulated") -}}
{{- $_ := set $made "openflow" (dict "allow_plain" true) -}}
{{- end -}}
{{- if eq $values.traces.to "volume" -}}
{{- $_ := set $made "traces" (dict "to" "file:///traces/dzflow") -}}
{{- else if eq $values.traces.to "storage" -}}
{{- $_ := set $made "traces" (dict "to" $values.traces.storage.address) -}}
{{- if $values.traces.storage.credentialsSecret -}}
{{- $_ := set $made "pass_variables" $values.traces.storage.variables -}}
{{- end -}}
{{- end -}}
{{- toYaml (mergeOverwrite (deepCopy $values.settings) $made) -}}
{{- end -}}
