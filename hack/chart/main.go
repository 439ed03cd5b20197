// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart writes the templates of the Helm chart that differ from the manifests in config/ only in namespaces, in
// labels and in conditions. So nobody writes a rule of RBAC or of a webhook twice. make generate runs it. The templates
// that take more values are written by hand.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

//go:generate go run . ../..

// Where the templates are, and the file among them with the versions of go.mod.
const (
	templates    = "charts/trainyard/templates"
	versionsFile = "_versions.tpl"
)

// A part is some manifests of config/ that the same values ask for.
type part struct {
	// from is a file, or a directory with files, below config.
	from string
	// when is the condition of a template.
	when string
}

// The conditions on which manifests belong to a release.
const (
	hub    = ".Values.hub.enabled"
	worker = ".Values.worker.enabled"
	agent  = ".Values.workerAgent.enabled"
	crds   = ".Values.crds.install"

	gateway = "and " + hub + " .Values.hub.gateway.enabled"
)

var parts = []part{
	{from: "crd/bases", when: "and " + hub + " " + crds},
	{from: "rbac", when: hub},
	{from: "users", when: hub},
	{from: "manager/pod_disruption_budget.yaml", when: hub},
	{
		from: "manager/resource_quota.yaml",
		when: "and " + hub + ` (eq .Values.hub.priorityClassName "system-cluster-critical")`,
	},
	{from: "monitoring/hub", when: "and " + hub + " .Values.monitoring.enabled"},
	{from: "network-policy/hub", when: "and " + hub + " .Values.networkPolicy.enabled"},
	{from: "kueue-dispatcher/hub", when: "and " + hub + " .Values.hub.kueue.dispatcher"},
	{from: "cluster-profiles", when: "and " + hub + " .Values.hub.clusterProfiles.namespace"},
	{from: "webhook-hub", when: "and " + hub + " .Values.hub.webhooks.enabled"},
	{from: "gateway/config_map.yaml", when: gateway},
	{from: "gateway/readers.yaml", when: gateway},
	{from: "gateway/role.yaml", when: gateway},
	{from: "gateway/role_binding.yaml", when: gateway},
	{from: "gateway/secret.yaml", when: gateway},
	{from: "users-runtimes", when: "and " + hub + " .Values.hub.users.runtimes"},
	{from: "dependencies", when: "and " + hub + " .Values.hub.dependencies"},
	{from: "kueue-admission-check", when: "and " + hub + " .Values.hub.kueue.admissionCheck"},

	{from: "worker", when: worker},
	{from: "worker-logs", when: "and " + worker + " .Values.worker.logs"},
	{from: "worker-exec", when: "and " + worker + " .Values.worker.exec"},
	{from: "worker-lookup", when: "and " + worker + " .Values.worker.lookup"},
	{from: "worker-dependencies", when: "and " + worker + " .Values.worker.dependencies"},
	{from: "worker-pins", when: "and " + worker + " .Values.worker.pins"},
	{from: "kueue-dispatcher/worker", when: "and " + worker + " .Values.worker.kueue.dispatcher"},
	{from: "worker-kueue", when: "and " + worker + " .Values.worker.kueue.quota"},
	{from: "admission", when: "and (or " + worker + " " + agent + ") .Values.admissionPolicies.enabled"},

	{from: "crd/worker", when: "and " + agent + " " + crds},
	{from: "worker-agent/cluster_role.yaml", when: agent},
	{from: "worker-agent/cluster_role_binding.yaml", when: agent},
	{from: "worker-agent/metrics_reader.yaml", when: agent},
	{from: "worker-agent/pod_disruption_budget.yaml", when: agent},
	{
		from: "worker-agent/resource_quota.yaml",
		when: "and " + agent + ` (eq .Values.workerAgent.priorityClassName "system-cluster-critical")`,
	},
	{from: "worker-agent/role.yaml", when: agent},
	{from: "worker-agent/role_binding.yaml", when: agent},
	{from: "worker-agent/service_account.yaml", when: agent},
	{from: "monitoring/worker", when: "and " + agent + " .Values.monitoring.enabled"},
	{from: "network-policy/worker-agent", when: "and " + agent + " .Values.networkPolicy.enabled"},
	{from: "worker-agent-kueue", when: "and " + agent + " .Values.workerAgent.kueue.quota"},
	{from: "webhook", when: "and " + agent + " .Values.workerAgent.webhooks.enabled"},
}

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: chart REPOSITORY"))
	}
	if err := os.Chdir(os.Args[1]); err != nil {
		fail(err)
	}
	if err := generate(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "chart:", err)
	os.Exit(1)
}

// generate writes a template for each manifest, in a directory that has nothing else, so that no template outlives its
// manifest.
func generate() error {
	root := filepath.Join(templates, "generated")
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	for _, part := range parts {
		files, err := manifests(filepath.Join("config", part.from))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := write(root, file, part.when); err != nil {
				return err
			}
		}
	}
	return writeVersions()
}

// manifests returns the path of a manifest, or the manifests in a directory.
func manifests(path string) ([]string, error) {
	if filepath.Ext(path) == ".yaml" {
		return []string{path}, nil
	}
	all, err := filepath.Glob(filepath.Join(path, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var files []string
	for _, file := range all {
		if filepath.Base(file) != "kustomization.yaml" {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no manifests", path)
	}
	return files, nil
}

func write(root, file, when string) error {
	manifest, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	name, err := filepath.Rel("config", file)
	if err != nil {
		return err
	}
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("{{- /* make generate writes this file from %s. */ -}}\n{{- if %s }}\n%s{{- end }}\n",
		file, when, template(string(manifest), ownerOf(name)))
	return os.WriteFile(path, []byte(text), 0o644)
}

var (
	license = regexp.MustCompile(`\A(?:# Copyright.*\n# SPDX.*\n\n?)`)
	// Only the metadata of the object begins in the first column, not the metadata of a pod template.
	metadata = regexp.MustCompile(`(?m)^(kind: .*\n)metadata:\n((?:  .*\n)*)`)
)

// ownerOf returns the part of the values that has the settings of a manifest's webhooks.
func ownerOf(name string) string {
	if filepath.Dir(name) == "webhook-hub" {
		return "hub"
	}
	return "workerAgent"
}

// template turns manifests into a template. owner is what ownerOf returns.
func template(manifests, owner string) string {
	manifests = license.ReplaceAllString(manifests, "")
	manifests = strings.ReplaceAll(manifests, "{{", `{{ "{{" }}`)
	manifests = metadata.ReplaceAllStringFunc(manifests, func(found string) string { return labelled(found, owner) })
	return strings.NewReplacer(
		"namespace: trainyard-system\n", "namespace: {{ .Release.Namespace }}\n",
		"namespace: kubeflow-system\n", "namespace: {{ .Values.workerAgent.namespace }}\n",
		"'trainyard-system'", andOther("trainyard-system", ".Release.Namespace"),
		"'kubeflow-system'", andOther("kubeflow-system", ".Values.workerAgent.namespace"),
		"namespace: cluster-inventory\n", "namespace: {{ .Values.hub.clusterProfiles.namespace }}\n",
		"  clientConfig:\n", "  clientConfig:\n"+with(owner, "    ", "caBundle: {{ . }}", "caBundle"),
		"system:serviceaccount:trainyard-system:", "system:serviceaccount:{{ .Release.Namespace }}:",
	).Replace(manifests)
}

// andOther is an item of a list of namespaces in config/admission/namespaces.yaml, which stays protected where the chart
// uses another namespace. Then this one is protected, too.
func andOther(namespace, value string) string {
	return fmt.Sprintf(`'%s'{{ if ne %s "%s" }}, '{{ %s }}'{{ end }}`, namespace, value, namespace, value)
}

// labelled adds the chart's labels to metadata. Only CRDs have annotations: they also get the annotation that keeps
// them.
func labelled(metadata, owner string) string {
	kind, _, _ := strings.Cut(metadata, "\n")
	const labels = "  labels:\n"
	common := "    {{- include \"trainyard.labels\" . | nindent 4 }}\n"
	if strings.Contains(metadata, labels) {
		metadata = strings.Replace(metadata, labels, labels+common, 1)
	} else {
		metadata += labels + common
	}
	if strings.Contains(kind, "WebhookConfiguration") {
		metadata += with(owner, "  ", "annotations: {{- toYaml . | nindent 4 }}", "annotations")
	}
	const annotations = "  annotations:\n"
	kept := "    {{- include \"trainyard.crdAnnotations\" . | nindent 4 }}\n"
	return strings.Replace(metadata, annotations, annotations+kept, 1)
}

// with renders a line if one of the owner's values webhooks is set.
func with(owner, indent, line, value string) string {
	const block = "%[1]s{{- with $.Values.%[4]s.webhooks.%[3]s }}\n%[1]s%[2]s\n%[1]s{{- end }}\n"
	return fmt.Sprintf(block, indent, line, value, owner)
}

// writeVersions writes the versions in go.mod of what a cluster needs beside Trainyard, for NOTES.txt.
func writeVersions() error {
	var text bytes.Buffer
	text.WriteString("{{- /* make generate writes this file from go.mod. */ -}}\n")
	for _, needed := range []struct{ name, module string }{
		{"jobset", "sigs.k8s.io/jobset"}, {"trainer", "github.com/kubeflow/trainer/v2"},
	} {
		list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", needed.module)
		version, err := list.Output()
		if err != nil {
			return fmt.Errorf("find the version of %s: %w", needed.module, err)
		}
		fmt.Fprintf(&text, "{{- define \"trainyard.%sVersion\" -}}%s{{- end }}\n", needed.name, bytes.TrimSpace(version))
	}
	return os.WriteFile(filepath.Join(templates, versionsFile), text.Bytes(), 0o644)
}
