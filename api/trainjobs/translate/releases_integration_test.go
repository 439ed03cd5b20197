// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/api/trainjobs/translate"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// server is an API server with the CRDs of one release, and what it says of the fields of TrainJobs.
type server struct {
	client.Client
	schema *fields.Schema
}

func startServer(t *testing.T, release string) server {
	t.Helper()
	crds, err := clusters.ReleaseCRDs(t.Context(), release)
	check.Must(t, err)
	cluster, err := clusters.Start(t.Context(), clusters.Options{Name: "trainer-" + strings.ReplaceAll(release, ".", "-"), CRDs: []string{crds}})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, cluster.Stop()) })
	c, err := client.New(cluster.Config, client.Options{})
	check.Must(t, err)
	raw, err := kubernetes.NewForConfig(cluster.Config)
	check.Must(t, err)
	s := server{Client: c}
	check.Eventually(t, "OpenAPI document", func(g gomega.Gomega) { // It comes a little later than the kinds.
		document, err := raw.RESTClient().Get().AbsPath("/openapi/v3/apis/trainer.kubeflow.org/v1alpha1").Stream(t.Context())
		g.Expect(err).NotTo(gomega.HaveOccurred())
		defer document.Close()
		specs, err := fields.Read(document, trainjobs.GroupVersionKind.Kind)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		s.schema = specs[trainjobs.GroupVersionKind.Kind]
		g.Expect(s.schema.Names()).NotTo(gomega.BeEmpty())
	})
	return s
}

// store creates a TrainJob with a spec, strictly, and returns the spec that the API server has stored.
func (s server) store(t *testing.T, name string, spec map[string]any) (map[string]any, error) {
	t.Helper()
	job := trainjobs.New()
	job.SetNamespace(metav1.NamespaceDefault)
	job.SetName(name)
	job.Object["spec"] = spec
	job = job.DeepCopy()
	err := s.Create(t.Context(), job, client.FieldValidation(metav1.FieldValidationStrict))
	return trainjobs.Spec(job), err
}

// A job for each field of the hub's TrainJobs goes to an API server of each release. There it is stored as we mean it, in the
// form of the release; or it is refused by the name of the field, and then the API server would not have taken it either.
func TestEveryFieldOnEveryRelease(t *testing.T) {
	hub := startServer(t, clusters.Trainer23)
	var jobs []map[string]any
	for i, c := range casesOf(specSchema(t), "") {
		c.value.(map[string]any)["runtimeRef"] = map[string]any{"name": "runtime"}
		stored, err := hub.store(t, fmt.Sprintf("job-%d", i), c.value.(map[string]any))
		if apierrors.IsInvalid(err) { // By a rule of the CRD: this value is not valid alone.
			t.Logf("%s is left out: %v", c.path, err)
			continue
		}
		check.Must(t, err)
		jobs = append(jobs, stored)
	}
	if len(jobs) < 450 {
		t.Errorf("there are only %d jobs", len(jobs))
	}
	for release, want := range map[string]map[string]int{
		clusters.Trainer20: {}, clusters.Trainer21: {}, clusters.Trainer22: {"translated": 0, "refused": 1}, clusters.Trainer23: {"translated": 0, "refused": 0},
	} {
		t.Run(release, func(t *testing.T) {
			worker := hub
			if release != clusters.Trainer23 {
				worker = startServer(t, release)
			}
			counts := map[string]int{}
			for i, spec := range jobs {
				counts[worker.get(t, fmt.Sprintf("copy-%d", i), hub.schema, spec)]++
			}
			t.Logf("%s: %v", release, counts)
			for what, count := range want {
				check.Equal(t, count, counts[what], "jobs that are %s", what)
			}
			if len(want) == 0 && (counts["native"] < 50 || counts["translated"] < 200 || counts["refused"] < 10) {
				t.Errorf("too few jobs are of a kind")
			}
		})
	}
}

// get brings a job to a worker as the manager does, and returns what has become of it.
func (s server) get(t *testing.T, name string, hub *fields.Schema, spec map[string]any) string {
	t.Helper()
	how, sent := "native", spec
	if into := translate.Into(s.schema.Names()); into != "" && spec[translate.Patches] != nil {
		translated, err := translate.Spec(spec, into)
		how = "translated"
		if sent = translated; err != nil {
			sent = spec
		}
	}
	unknown := fields.Unknown(translate.Fields(spec), translate.Lacking(hub, s.schema))
	stored, err := s.store(t, name, sent)
	switch {
	case len(unknown) > 0:
		if err == nil {
			t.Errorf("%s: the job lacks %q, and the API server takes it as %v", name, unknown, sent)
		}
		return "refused"
	case err != nil:
		t.Errorf("%s: the API server does not take %v: %v", name, sent, err)
	default:
		check.Diff(t, sent, stored, name+": what the API server has stored")
	}
	return how
}

// specSchema is the schema of the spec of the hub's TrainJobs, from its CRD.
func specSchema(t *testing.T) map[string]any {
	t.Helper()
	dir, err := clusters.ReleaseCRDs(t.Context(), clusters.Trainer23)
	check.Must(t, err)
	objects, err := clusters.ReadObjects(dir + "/trainer.kubeflow.org_trainjobs.yaml")
	check.Must(t, err)
	versions, _, err := unstructured.NestedSlice(objects[0].Object, "spec", "versions")
	check.Must(t, err)
	spec, _, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec")
	check.Must(t, err)
	return spec
}

// valueCase is a value with one field, and all that is required beside it.
type valueCase struct {
	path  string
	value any
}

// casesOf returns a value for each field below a schema.
func casesOf(schema map[string]any, path string) (cases []valueCase) {
	properties, _ := schema["properties"].(map[string]any)
	switch {
	case schema["type"] == "array":
		for _, c := range casesOf(schema["items"].(map[string]any), path) {
			cases = append(cases, valueCase{c.path, []any{c.value}})
		}
		return cases
	case len(properties) == 0:
		return []valueCase{{path, minimal(schema, path)}}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if path == "" && slices.Contains([]string{"managedBy", "runtimeRef", "suspend"}, name) {
			continue
		}
		for _, c := range casesOf(properties[name].(map[string]any), path+"."+name) {
			object := minimal(schema, path).(map[string]any)
			object[name] = c.value
			cases = append(cases, valueCase{c.path, object})
		}
	}
	return cases
}

// minimal is a valid value with what is required.
func minimal(schema map[string]any, path string) any {
	if values, is := schema["enum"].([]any); is {
		return values[0]
	}
	if schema["x-kubernetes-int-or-string"] == true {
		return "1"
	}
	switch schema["type"] {
	case "array":
		return []any{minimal(schema["items"].(map[string]any), path)}
	case "integer":
		least, _ := schema["minimum"].(int64)
		return max(least, 1)
	case "boolean":
		return true
	case "string":
		switch {
		case schema["format"] == "date-time":
			return "2026-01-01T00:00:00Z"
		case strings.HasSuffix(path, ".storageUri"):
			return "s3://bucket/object"
		}
		return "value"
	}
	object := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		object[name.(string)] = minimal(properties[name.(string)].(map[string]any), path+"."+name.(string))
	}
	if values, is := schema["additionalProperties"].(map[string]any); is {
		object["example.com/key"] = minimal(values, path)
	}
	return object
}
