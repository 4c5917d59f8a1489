{{- define "shardplan.name" -}}
{{- printf "%s-shardplan" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "shardplan.labels" -}}
app.kubernetes.io/name: shardplan
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "shardplan.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* What every pod has beside its container. */}}
{{- define "shardplan.pod" -}}
serviceAccountName: {{ include "shardplan.name" . }}
automountServiceAccountToken: false
terminationGracePeriodSeconds: 30
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: temporary
    emptyDir:
      sizeLimit: {{ .Values.temporary }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What every container has beside its command. */}}
{{- define "shardplan.container" -}}
image: {{ include "shardplan.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - name: SHARDPLAN_DATABASE
    valueFrom:
      secretKeyRef:
        name: {{ .Values.database.secret }}
        key: {{ .Values.database.key }}
  - name: HOME
    value: /tmp
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: temporary
    mountPath: /tmp
{{- end }}
