// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package multikueue

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	manifests "github.com/trainyard/trainyard/config"
)

// newObservation has an AdmissionCheck "multikueue" of a config "fleet", without clusters and queues.
func newObservation() *Observation {
	check := &kueues.AdmissionCheck{}
	check.Spec.ControllerName, check.Spec.Parameters = v1alpha1.ManagedByMultiKueue, kueues.Parameters{Kind: configKind, Name: "fleet"}
	return &Observation{
		checks: map[string]*kueues.AdmissionCheck{"multikueue": check}, configs: map[string]*kueues.MultiKueueConfig{"fleet": {}},
		local: map[string][]LocalQueue{}, objects: map[string]*unstructured.Unstructured{}, policies: 1,
	}
}

func (o *Observation) addQueue(name string, checks ...string) {
	queue := &kueues.ClusterQueue{}
	queue.Name = name
	for _, check := range checks {
		queue.Spec.AdmissionChecksStrategy.AdmissionChecks = append(queue.Spec.AdmissionChecksStrategy.AdmissionChecks, kueues.CheckRule{Name: check})
	}
	o.queues = append(o.queues, queue)
	o.local[name] = []LocalQueue{{NamespacedName: types.NamespacedName{Namespace: "ns-" + name, Name: "main"}}}
}

// imported adds the policy of an earlier import.
func (o *Observation) imported(annotation string) {
	policy := newObject(policyKind, "fleet", configKind, "fleet")
	policy.SetAnnotations(map[string]string{AnnotationFrom: "MultiKueueConfig/fleet", annotationQueues: annotation})
	o.objects[keyOf(policy)] = policy
}

func TestDecideQueues(t *testing.T) {
	type queue struct {
		Name string
		Done bool
		Back string
	}
	cases := map[string]struct {
		reason  string
		observe func(*Observation)
		want    []queue
	}{
		"none": {
			reason:  "queues without a check of MultiKueue are none of ours",
			observe: func(o *Observation) { o.addQueue("a"); o.addQueue("b", "capacity") },
		},
		"with the check": {
			reason:  "the way back restores all checks in their order",
			observe: func(o *Observation) { o.addQueue("a", "capacity", "multikueue") },
			want:    []queue{{Name: "a", Back: `"admissionChecks":[{"name":"capacity"},{"name":"multikueue"}]`}},
		},
		"after the cut-over": {
			reason: "the policy remembers the checks of the queue",
			observe: func(o *Observation) {
				o.addQueue("a", "capacity")
				o.imported(`{"a":[{"name":"capacity"},{"name":"multikueue"}],"deleted":[{"name":"multikueue"}]}`)
			},
			want: []queue{{Name: "a", Done: true, Back: `"admissionChecks":[{"name":"capacity"},{"name":"multikueue"}]`}},
		},
		"after the way back": {
			reason: "what the queue has counts more than what the policy remembers",
			observe: func(o *Observation) {
				o.addQueue("a", "multikueue")
				o.imported(`{"a":[{"name":"capacity"},{"name":"multikueue"}]}`)
			},
			want: []queue{{Name: "a", Back: `"admissionChecks":[{"name":"multikueue"}]`}},
		},
		"edited annotation": {
			reason:  "an annotation that is no JSON is as none",
			observe: func(o *Observation) { o.addQueue("a"); o.imported("{") },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := newObservation()
			tc.observe(o)
			plan, err := o.Decide(time.Unix(0, 0))
			if err != nil {
				t.Fatal(err)
			}
			var got []queue
			for _, q := range plan.Queues {
				steps := q.ToMultiKueue("kubectl")
				_, back, _ := strings.Cut(steps[len(steps)-1].Command, `{"admissionChecksStrategy":{`)
				back, _, _ = strings.Cut(back, `},"stopPolicy"`)
				got = append(got, queue{Name: q.Name, Done: q.Done, Back: back})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestRepeatedDecision checks that a second import has the policy of the first import, before and after a cut-over.
func TestRepeatedDecision(t *testing.T) {
	first := newObservation()
	first.addQueue("a", "multikueue")
	first.addQueue("b", "multikueue")
	plan, err := first.Decide(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	policy := plan.Policies[0].Object
	second := newObservation()
	second.addQueue("a")
	second.addQueue("b", "multikueue")
	second.objects[keyOf(policy)] = policy
	again, err := second.Decide(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(policy, again.Policies[0].Object); diff != "" {
		t.Errorf("(-first +second):\n%s", diff)
	}
}

func TestNotesAndRefusals(t *testing.T) {
	cases := map[string]struct {
		observe  func(*Observation)
		note     string
		noPolicy string
	}{
		"check without config": {
			observe: func(o *Observation) { o.configs = nil },
			note:    `AdmissionCheck "multikueue" names MultiKueueConfig "fleet", which does not exist, so its ClusterQueues cannot be imported`,
		},
		"no queue": {
			observe:  func(o *Observation) { o.addQueue("a") },
			noPolicy: "no LocalQueue leads to a ClusterQueue that dispatches through this MultiKueueConfig: repeat the import when there is one",
		},
		"first policy": {
			observe: func(o *Observation) { o.addQueue("a", "multikueue"); o.policies = 0 },
			note:    "with the first DispatchPolicy of a hub, new jobs that no policy selects wait",
		},
		"selected too": {
			observe: func(o *Observation) {
				o.addQueue("a", "multikueue")
				o.addQueue("b", "multikueue")
				o.local["b"][0].Name = "other"
				o.local["c"] = []LocalQueue{{NamespacedName: types.NamespacedName{Namespace: "ns-b", Name: "main"}}}
			},
			note: `DispatchPolicy "fleet" selects by namespace and name of the queue, so it selects the jobs of LocalQueue ns-b/main too`,
		},
		"nothing to say": {
			observe: func(o *Observation) { o.addQueue("a", "multikueue") },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := newObservation()
			tc.observe(o)
			plan, err := o.Decide(time.Unix(0, 0))
			if err != nil {
				t.Fatal(err)
			}
			if notes := strings.Join(plan.Notes, "\n"); (notes == "") != (tc.note == "") || !strings.HasPrefix(notes, tc.note) {
				t.Errorf("notes %q, want %q", notes, tc.note)
			}
			for _, policy := range plan.Policies {
				if policy.Refusal != tc.noPolicy {
					t.Errorf("refusal %q, want %q", policy.Refusal, tc.noPolicy)
				}
			}
		})
	}
	if _, err := (&Observation{}).Decide(time.Unix(0, 0)); err == nil {
		t.Error("no error without an AdmissionCheck of MultiKueue")
	}
}

func TestContains(t *testing.T) {
	cases := map[string]struct {
		live, applied string
		want          bool
	}{
		"equal":             {`{a: 1, b: {c: [x, y]}}`, `{a: 1, b: {c: [x, y]}}`, true},
		"more fields":       {`{a: 1, b: {c: 2, d: 3}}`, `{b: {c: 2}}`, true},
		"missing field":     {`{a: 1}`, `{b: 1}`, false},
		"other value":       {`{a: 1}`, `{a: 2}`, false},
		"other order":       {`{a: [x, y]}`, `{a: [y, x]}`, false},
		"longer list":       {`{a: [x, y]}`, `{a: [x]}`, false},
		"more named items":  {`{a: [{name: x, weight: 1}, {name: y}]}`, `{a: [{name: x}]}`, true},
		"other named item":  {`{a: [{name: y}]}`, `{a: [{name: x}]}`, false},
		"field of an item":  {`{a: [{name: x, order: [p]}]}`, `{a: [{name: x, order: [q]}]}`, false},
		"item without name": {`{a: [{key: x, values: [p, q]}]}`, `{a: [{key: x, values: [p]}]}`, false},
		"scalar for object": {`{a: 1}`, `{a: {b: 1}}`, false},
		"scalar for list":   {`{a: 1}`, `{a: [{name: x}]}`, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var live, applied any
			if err := errors.Join(yaml.Unmarshal([]byte(tc.live), &live), yaml.Unmarshal([]byte(tc.applied), &applied)); err != nil {
				t.Fatal(err)
			}
			if got := contains(live, applied); got != tc.want {
				t.Errorf("contains(%s, %s) = %t", tc.live, tc.applied, got)
			}
		})
	}
}

// TestRoleOfTheManifest checks that the commands name the ClusterRole of config/worker.
func TestRoleOfTheManifest(t *testing.T) {
	role, err := manifests.HubRole()
	if err != nil || role.Name != roleName || len(rightsOf(role)) == 0 {
		t.Errorf("HubRole() = %v, %v, and the commands name %q", role, err, roleName)
	}
}

func TestCommandsNameTheHub(t *testing.T) {
	o := Options{Context: "hub", Namespace: "ours"}
	if got, want := o.kubectl(), "kubectl --context hub"; got != want {
		t.Errorf("kubectl() = %q, want %q", got, want)
	}
	const want = "kubectl trainyard join east --context east --hub-context hub --namespace ours --label import.trainyard.dev/a=true --label import.trainyard.dev/b=true"
	if got := o.register("east", []string{"a", "b"}); got != want {
		t.Errorf("register() = %q, want %q", got, want)
	}
}

func TestGrants(t *testing.T) {
	cases := map[string]string{
		"system:serviceaccount:kueue-system:multikueue-sa": "--serviceaccount=kueue-system:multikueue-sa",
		"hub": "--user=hub",
		"":    "--user=USER",
	}
	for user, want := range cases {
		commands := (&Lack{User: user}).Grants("east")
		if want := "kubectl --context east create clusterrolebinding trainyard-hub-import --clusterrole=trainyard-hub " + want; commands[1] != want {
			t.Errorf("command for %q is %q, want %q", user, commands[1], want)
		}
	}
}
