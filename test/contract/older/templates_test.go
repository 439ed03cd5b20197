// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package older

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	jobruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/api/trainjobs/translate"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// releases are the older releases with another field, by the version of their CRDs.
var releases = map[string]string{"2.0": clusters.Trainer20, "2.1": clusters.Trainer21, "2.2": clusters.Trainer22}

// program is the path of a release that hack/build-trainers.sh has built.
func program(t *testing.T, release string) string {
	t.Helper()
	dir := os.Getenv("TRAINYARD_BIN")
	if dir == "" {
		root, err := clusters.ModuleDir(t.Context(), "github.com/trainyard/trainyard")
		check.Must(t, err)
		dir = filepath.Join(root, "bin")
	}
	path := filepath.Join(dir, "trainer-"+release)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: hack/build-trainers.sh builds it", err)
	}
	return path
}

// answer is what a release makes of a TrainJob.
type answer struct {
	Error   string   `json:"error"`
	Faults  []string `json:"faults"`
	Objects []any    `json:"objects"`
}

// jobSet is what a test compares of the JobSet of an answer: all but who owns it.
func (a answer) jobSet() map[string]any {
	for _, object := range a.Objects {
		fields, _ := object.(map[string]any)
		if fields["kind"] != "JobSet" {
			continue
		}
		metadata, _ := fields["metadata"].(map[string]any)
		return map[string]any{"labels": metadata["labels"], "annotations": metadata["annotations"], "spec": fields["spec"]}
	}
	return nil
}

// runtimeText has two replicated jobs, one of them the trainer's, with something in each field that patches can change.
const runtimeText = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: runtime}
spec:
  mlPolicy: {numNodes: 1}
  template:
    metadata: {labels: {of: runtime}, annotations: {note: runtime}}
    spec:
      replicatedJobs:
      - name: prepare
        template: {spec: {template: {spec: {
          containers: [{name: a, image: a, env: [{name: X, value: runtime}]}, {name: b, image: b}], nodeSelector: {zone: z0}}}}}
      - name: node
        dependsOn: [{name: prepare, status: Complete}]
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              metadata: {labels: {of: runtime}, annotations: {note: runtime}}
              spec:
                serviceAccountName: runtime
                nodeSelector: {zone: z0, base: "true"}
                tolerations: [{key: runtime, operator: Exists}]
                volumes: [{name: v0, emptyDir: {}}, {name: v1, emptyDir: {}}]
                schedulingGates: [{name: example.com/g0}]
                initContainers: [{name: prep, image: p, env: [{name: X, value: runtime}]}]
                containers: [{name: node, image: node, volumeMounts: [{name: v0, mountPath: /v0}]}, {name: side, image: s, env: [{name: X, value: runtime}, {name: "Y", value: runtime}]}]
`

// generator makes jobs.
type generator struct{ *rand.Rand }

func (g generator) maybe(percent int) bool { return g.IntN(100) < percent }

func (g generator) pick(names ...string) string { return names[g.IntN(len(names))] }

func (g generator) value() string { return fmt.Sprintf("v%d", g.IntN(3)) }

func (g generator) labels() map[string]any {
	all := map[string]any{}
	for range 1 + g.IntN(2) {
		all[g.pick("of", "note", "team")] = g.value()
	}
	return all
}

func (g generator) env() []any {
	names := g.Perm(3)[:1+g.IntN(3)]
	var env []any
	for _, i := range names {
		env = append(env, map[string]any{"name": []string{"X", "Y", "Z"}[i], "value": g.value()})
	}
	return env
}

// containers changes some of the containers with these names. The container node may have no variables.
func (g generator) containers(names ...string) []any {
	var all []any
	for _, i := range g.Perm(len(names))[:1+g.IntN(len(names))] {
		container := map[string]any{"name": names[i]}
		if names[i] != "node" && g.maybe(70) {
			container["env"] = g.env()
		}
		if g.maybe(50) {
			container["volumeMounts"] = []any{map[string]any{"name": g.pick("v0", "v1"), "mountPath": "/" + g.value()}}
		}
		all = append(all, container)
	}
	return all
}

func (g generator) pod(job string) map[string]any {
	spec := map[string]any{}
	add := func(percent int, name string, value func() any) {
		if g.maybe(percent) {
			spec[name] = value()
		}
	}
	add(40, "nodeSelector", func() any { return map[string]any{g.pick("zone", "rack", "base"): g.value()} })
	add(30, "tolerations", func() any { return []any{map[string]any{"key": g.value(), "operator": "Exists"}} })
	add(15, "serviceAccountName", func() any { return g.value() })
	add(15, "volumes", func() any {
		return []any{map[string]any{"name": g.pick("v1", "v2", "v3"), "emptyDir": map[string]any{"medium": "Memory"}}}
	})
	add(15, "schedulingGates", func() any { return []any{map[string]any{"name": "example.com/" + g.pick("g0", "g1")}} })
	add(10, "affinity", func() any {
		return map[string]any{"nodeAffinity": map[string]any{"preferredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{
			"weight": int64(1), "preference": map[string]any{"matchExpressions": []any{map[string]any{"key": g.value(), "operator": "Exists"}}},
		}}}}
	})
	add(10, "imagePullSecrets", func() any { return []any{map[string]any{"name": g.value()}} })
	add(3, "securityContext", func() any { return map[string]any{"runAsNonRoot": true} })
	add(3, "terminationGracePeriodSeconds", func() any { return int64(90) })
	if job == "prepare" {
		add(20, "containers", func() any { return g.containers("a", "b") })
	} else {
		add(20, "containers", func() any { return g.containers("node", "side") })
		add(10, "initContainers", func() any { return g.containers("prep") })
	}
	return spec
}

func (g generator) patch(manager int) map[string]any {
	template := map[string]any{}
	if g.maybe(30) {
		template["metadata"] = map[string]any{g.pick("labels", "annotations"): g.labels()}
	}
	var jobs []any
	for _, i := range g.Perm(2)[:1+g.IntN(2)] {
		name := []string{"prepare", "node"}[i]
		pod := map[string]any{"spec": g.pod(name)}
		if g.maybe(15) {
			pod["metadata"] = map[string]any{g.pick("labels", "annotations"): g.labels()}
		}
		job := map[string]any{"spec": map[string]any{"template": pod}}
		if g.maybe(2) {
			job["metadata"] = map[string]any{"labels": g.labels()}
		}
		jobs = append(jobs, map[string]any{"name": name, "template": job})
	}
	template["spec"] = map[string]any{"replicatedJobs": jobs}
	return map[string]any{"manager": fmt.Sprintf("example.com/m%d", manager), "trainingRuntimeSpec": map[string]any{"template": template}}
}

func (g generator) spec() map[string]any {
	var patches []any
	for i := range 1 + g.IntN(4) {
		patches = append(patches, g.patch(i))
	}
	spec := map[string]any{
		"runtimeRef": map[string]any{"name": "runtime", "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
		"trainer":    map[string]any{"numNodes": int64(2), "image": "own", "command": []any{"train"}},
		"suspend":    false,
	}
	if spec["runtimePatches"] = patches; g.maybe(10) {
		delete(spec, "runtimePatches")
	}
	return spec
}

// Of a job, translated if the release has another field, an older release makes the same JobSet as the hub's release makes
// of the job itself.
func TestSamePodTemplates(t *testing.T) {
	const count = 1000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g := generator{rand.New(rand.NewPCG(seed, 1))}
	specs := make([]map[string]any, count)
	for i := range specs {
		specs[i] = g.spec()
	}
	for release, version := range releases {
		t.Run(release, func(t *testing.T) {
			hub, schema := newest(t), schemaOf(t, version)
			lacking, into := translate.Lacking(schemaOf(t, clusters.Trainer23), schema), translate.Into(schema.Names())
			var jobs, wanted []map[string]any
			refused := 0
			for _, spec := range specs {
				if len(fields.Unknown(translate.Fields(spec), lacking)) > 0 {
					refused++
					continue
				}
				translated := spec
				if into != "" {
					var err error
					translated, err = translate.Spec(spec, into)
					check.Must(t, err)
				}
				jobs, wanted = append(jobs, translated), append(wanted, spec)
			}
			t.Logf("%d of %d jobs are refused", refused, count)
			if refused == 0 || len(jobs) < count/5 {
				t.Errorf("%d jobs are translated", len(jobs))
			}
			for i, got := range ask(t, release, runtimeText, jobs) {
				want := hub(i, wanted[i])
				if len(want.Faults) > 0 || want.Error != "" {
					t.Fatalf("the job itself is wrong: %v %s", want.Faults, want.Error)
				}
				if len(got.Faults) > 0 || got.Error != "" {
					t.Errorf("the release refuses %v: %v %s", jobs[i], got.Faults, got.Error)
				}
				check.Diff(t, want.jobSet(), got.jobSet(), fmt.Sprintf("what is made of %v", wanted[i]["runtimePatches"]))
				if t.Failed() {
					return // One is enough.
				}
			}
		})
	}
}

func schemaOf(t *testing.T, version string) *fields.Schema {
	t.Helper()
	document, kind, err := clusters.ReleaseDocument(t.Context(), version, "trainjobs")
	check.Must(t, err)
	specs, err := fields.Read(bytes.NewReader(document), kind)
	check.Must(t, err)
	return specs[kind]
}

// trainJob has another name for each number: the hub's release keeps a snapshot of the runtime for each job.
func trainJob(number int, spec map[string]any) map[string]any {
	name := fmt.Sprintf("job-%d", number)
	return map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": map[string]any{"namespace": "default", "name": name, "uid": name}, "spec": spec,
	}
}

// ask asks an older release what it makes of jobs of a runtime.
func ask(t *testing.T, release, runtimeText string, specs []map[string]any) []answer {
	t.Helper()
	var cases bytes.Buffer
	ofRuntime, err := yaml.YAMLToJSON([]byte(runtimeText))
	check.Must(t, err)
	encoder := json.NewEncoder(&cases)
	for i, spec := range specs {
		check.Must(t, encoder.Encode(map[string]any{"runtime": json.RawMessage(ofRuntime), "trainJob": trainJob(i, spec)}))
	}
	command := exec.CommandContext(t.Context(), program(t, release), "objects")
	command.Stdin = &cases
	var log strings.Builder
	command.Stderr = &log
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	var answers []answer
	for line := range bytes.Lines(out) {
		var a answer
		check.Must(t, utiljson.Unmarshal(line, &a))
		answers = append(answers, a)
	}
	check.Equal(t, len(specs), len(answers), "answers")
	return answers
}

// clientWith returns a client of a cluster that has only this ClusterTrainingRuntime.
func clientWith(t *testing.T, runtimeText string) client.Client {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, trainer.AddToScheme, jobsetv1alpha2.AddToScheme} {
		check.Must(t, add(scheme))
	}
	of := &trainer.ClusterTrainingRuntime{}
	check.Must(t, yaml.UnmarshalStrict([]byte(runtimeText), of))
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(of).Build()
}

// newest returns a function that says what the hub's release makes of a job.
func newest(t *testing.T) func(number int, spec map[string]any) answer {
	t.Helper()
	runtimes, err := core.New(t.Context(), clientWith(t, runtimeText), noIndex{}, nil)
	check.Must(t, err)
	return func(number int, spec map[string]any) answer {
		job := &trainer.TrainJob{}
		check.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(trainJob(number, spec), job, true))
		r := runtimes[jobruntime.RuntimeRefToRuntimeRegistryKey(job.Spec.RuntimeRef)]
		var a answer
		_, faults := r.ValidateObjects(t.Context(), nil, job)
		for _, fault := range faults {
			a.Faults = append(a.Faults, fault.Error())
		}
		objects, err := r.NewObjects(t.Context(), job)
		check.Must(t, err)
		for _, object := range objects {
			text, err := json.Marshal(object)
			check.Must(t, err)
			fields := map[string]any{}
			check.Must(t, utiljson.Unmarshal(text, &fields))
			a.Objects = append(a.Objects, fields)
		}
		return a
	}
}

// noIndex discards indexes.
type noIndex struct{}

func (noIndex) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}
