{{- /* make generate writes this file from go.mod. */ -}}
{{- define "trainyard.jobsetVersion" -}}v0.12.0{{- end }}
{{- define "trainyard.trainerVersion" -}}v2.3.0{{- end }}
