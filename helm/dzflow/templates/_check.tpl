{{/* Refuses values that cannot work, with what to do. What one value alone shows is in
values.schema.json. */}}
{{- define "dzflow.check" -}}
{{- $values := .Values -}}
{{- if and (eq $values.dataPlane "external") (not $values.southbound.tls.secret) (not $values.southbound.tls.allowPlain) -}}
{{- fail "southbound.tls.secret: switches connect with TLS; name a Secret with tls.crt, tls.key and ca.crt, or set southbound.tls.allowPlain=true in a network that you trust" -}}
{{- end -}}
{{- if and (not $values.etcd.enabled) (not $values.etcd.external.endpoints) -}}
{{- fail "etcd.external.endpoints: name the members of your etcd, or set etcd.enabled=true" -}}
{{- end -}}
{{- if and $values.etcd.enabled $values.etcd.external.endpoints -}}
{{- fail "etcd.external.endpoints: they are only used with etcd.enabled=false" -}}
{{- end -}}
{{- if and (not $values.etcd.enabled) (not $values.etcd.external.tlsSecret) (not $values.etcd.external.plain) -}}
{{- fail "etcd.external.tlsSecret: name a Secret with ca.crt, or set etcd.external.plain=true in a network that you trust" -}}
{{- end -}}
{{- if and (not $values.etcd.enabled) $values.etcd.external.user (not $values.secrets.existingSecret) -}}
{{- fail "secrets.existingSecret: the password of etcd.external.user is its key etcd-password" -}}
{{- end -}}
{{- if and $values.secrets.existingSecret (or $values.secrets.operatorTokens $values.secrets.hostTokens) -}}
{{- fail "secrets.existingSecret: it has the tokens; put those of operatorTokens and hostTokens into it, and leave these empty" -}}
{{- end -}}
{{- if and $values.etcd.external.clientCertificate (not $values.etcd.external.tlsSecret) -}}
{{- fail "etcd.external.clientCertificate: the certificate is in etcd.external.tlsSecret; name it" -}}
{{- end -}}
{{- if and $values.etcd.enabled (ne (empty $values.etcd.tls.secret) (empty $values.etcd.tls.clientSecret)) -}}
{{- fail "etcd.tls: secret and clientSecret belong together; give both, or none" -}}
{{- end -}}
{{- if and $values.etcd.enabled $values.etcd.persistence.enabled (lt (include "dzflow.bytes" $values.etcd.persistence.size | float64) (mulf 2 $values.etcd.quota)) -}}
{{- fail "etcd.persistence.size: a volume needs at least twice etcd.quota, for snapshots and the log; enlarge it, or lower the quota" -}}
{{- end -}}
{{- if and (eq $values.ray.mode "external") (not $values.ray.external.address) -}}
{{- fail "ray.external.address: name the cluster, as ray://HOST:10001" -}}
{{- end -}}
{{- if and (ne $values.ray.mode "external") (lt (add (int $values.ray.head.cpus) (mul (int $values.ray.worker.replicas) (int $values.ray.worker.cpus))) (int $values.configurators.count)) (not $values.ray.worker.maxReplicas) -}}
{{- fail (printf "configurators.count: each of the %d configurators reserves one of Ray's CPUs, of which there are fewer; raise ray.worker.replicas, ray.worker.cpus or ray.head.cpus" (int $values.configurators.count)) -}}
{{- end -}}
{{- with $values.ray.worker.maxReplicas -}}
{{- if ne $values.ray.mode "kuberay" -}}
{{- fail "ray.worker.maxReplicas: only KubeRay can add workers; set ray.mode=kuberay, or leave it out" -}}
{{- end -}}
{{- if lt (int .) (int $values.ray.worker.replicas) -}}
{{- fail "ray.worker.maxReplicas: it is smaller than ray.worker.replicas" -}}
{{- end -}}
{{- end -}}
{{- if and (eq $values.dataPlane "onos") (gt (int $values.southbound.replicas) 1) -}}
{{- fail "southbound.replicas: with dataPlane=onos there is one southbound process" -}}
{{- end -}}
{{- if and $values.api.ingress.enabled (not $values.api.ingress.host) -}}
{{- fail "api.ingress.host: the Ingress needs the name of the API" -}}
{{- end -}}
{{- if and $values.api.autoscaling.enabled (gt (int $values.api.autoscaling.minReplicas) (int $values.api.autoscaling.maxReplicas)) -}}
{{- fail "api.autoscaling.minReplicas: it is larger than api.autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and (ne $values.spark.mode "none") (eq $values.traces.to "none") -}}
{{- fail "traces.to: the Spark job reads traces; choose volume or storage" -}}
{{- end -}}
{{- if and (eq $values.traces.to "storage") (not $values.traces.storage.address) -}}
{{- fail "traces.storage.address: name the storage, such as s3://bucket/dzflow" -}}
{{- end -}}
{{- if and (eq $values.ray.mode "kuberay") (not (.Capabilities.APIVersions.Has "ray.io/v1/RayCluster")) (include "dzflow.onCluster" .) -}}
{{- fail "ray.mode: this cluster knows no RayCluster; install the KubeRay operator first, or set ray.mode=plain" -}}
{{- end -}}
{{- if and (eq $values.spark.mode "operator") (not (.Capabilities.APIVersions.Has "sparkoperator.k8s.io/v1beta2/ScheduledSparkApplication")) (include "dzflow.onCluster" .) -}}
{{- fail "spark.mode: this cluster knows no ScheduledSparkApplication; install the Spark operator first, or set spark.mode=cronjob" -}}
{{- end -}}
{{- if and (or $values.monitoring.serviceMonitor.enabled $values.monitoring.alerts.enabled) (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/ServiceMonitor")) (include "dzflow.onCluster" .) -}}
{{- fail "monitoring: this cluster knows no ServiceMonitor; install the Prometheus operator first, or switch serviceMonitor and alerts off" -}}
{{- end -}}
{{- if and (eq $values.dataPlane "onos") (hasKey $values.settings "plan") (ne (toString $values.settings.plan) "lpm") -}}
{{- fail "settings.plan: with dataPlane=onos it is lpm; leave it out" -}}
{{- end -}}
{{- $isFound := and (eq $values.dataPlane "external") (ne (get ($values.settings.discovery | default dict) "links" | toString) "off") -}}
{{- if not (or (eq $values.dataPlane "emulated") $isFound $values.network $values.topology) -}}
{{- fail "network: say what your network is like, as a topology file does, or name one in topology" -}}
{{- end -}}
{{- $namespace := .Release.Namespace -}}
{{- if $values.etcd.enabled -}}
{{- with lookup "apps/v1" "StatefulSet" $namespace (include "dzflow.etcdName" .) -}}
{{- if ne (int .spec.replicas) (int $values.etcd.replicas) -}}
{{- fail (printf "etcd.replicas: it is %d and cannot be changed; for another number, back up, install again and restore (docs/how-to/deploy.md)" (int .spec.replicas)) -}}
{{- end -}}
{{- $claims := .spec.volumeClaimTemplates | default list -}}
{{- if ne (empty $claims) (not $values.etcd.persistence.enabled) -}}
{{- fail "etcd.persistence.enabled: it cannot be changed; back up, install again and restore (docs/how-to/deploy.md)" -}}
{{- end -}}
{{- range $claims -}}
{{- $sizes := list (include "dzflow.bytes" .spec.resources.requests.storage) (include "dzflow.bytes" $values.etcd.persistence.size) -}}
{{- if or (ne (first $sizes) (last $sizes)) (ne (.spec.storageClassName | default "") $values.etcd.persistence.storageClass) -}}
{{- fail (printf "etcd.persistence: the claims have %s of the class %q, which an upgrade cannot change; docs/how-to/deploy.md says how to get larger volumes" .spec.resources.requests.storage (.spec.storageClassName | default "")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $made := dict
    "data_plane" "dataPlane" "topology" "topology" "configurators" "configurators.count"
    "southbound" "southbound.replicas" "southbound_placed" "" "southbound_id" "" "dispatchers" "api.replicas"
    "listen" "" "port" "" "data_dir" "" "stream_token" "secrets" "pass_variables" "traces.storage.variables"
    "allow_anonymous" "" "ray" "ray" "tokens" "secrets" "tls" "api.tls" "probes" "" "traces" "traces" -}}
{{- range $name, $better := $made -}}
{{- if hasKey $values.settings $name -}}
{{- fail (printf "settings.%s: the chart sets it%s" $name (ternary "" (printf "; use %s" $better) (eq $better ""))) -}}
{{- end -}}
{{- end -}}
{{- $sections := dict
    "etcd" (list "endpoints" "prefix" "user" "password" "ca" "cert" "key" "plain" "quota")
    "streams" (list "cert" "key" "ca" "host" "advertise" "ports")
    "openflow" (list "host" "ports" "advertise" "cert" "key" "ca" "allow_plain")
    "http" (list "process_ports")
    "times" (list "drain" "drain_delay") "log" (list "to") "onos" (list "password") "telemetry" (list "headers") -}}
{{- range $section, $names := $sections -}}
{{- $given := get $values.settings $section | default dict -}}
{{- range $names -}}
{{- /* dzflow cannot ask an etcd of your own for its quota. */ -}}
{{- $free := and (eq $section "etcd") (eq . "quota") (not $values.etcd.enabled) -}}
{{- if and (hasKey $given .) (not $free) -}}
{{- fail (printf "settings.%s.%s: the chart sets it, or it is a secret; see the other values, or give secrets as variables in secrets.variables" $section .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The bytes of a quantity: the API server may write it in another way, such as 1Gi for 1024Mi. */}}
{{- define "dzflow.bytes" -}}
{{- $units := dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624
    "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 -}}
{{- mulf (regexFind "^[0-9.]+" .) (get $units (regexFind "[A-Za-z]*$" .)) | printf "%.0f" -}}
{{- end -}}

{{/* Whether a cluster is asked: `helm template` and `helm lint` know no custom resources. */}}
{{- define "dzflow.onCluster" -}}
{{- if lookup "v1" "Namespace" "" "kube-system" }}yes{{ end -}}
{{- end -}}
