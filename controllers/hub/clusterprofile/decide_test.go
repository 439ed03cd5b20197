// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterprofile

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const origin = "inventory/east"

func profileWith(labels map[string]string, properties ...inventory.Property) *inventory.ClusterProfile {
	return &inventory.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: "inventory", Name: "east", Labels: labels},
		Status:     inventory.ClusterProfileStatus{Properties: properties},
	}
}

func workerWith(annotations, labels map[string]string, unschedulable bool) *v1alpha1.WorkerCluster {
	worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: "east", Annotations: annotations, Labels: labels}}
	worker.Spec.Connection.KubeconfigPath = "/etc/kubeconfigs/east"
	worker.Spec.Unschedulable = unschedulable
	return worker
}

// outcome is what a decision changes.
type outcome struct {
	Action        string
	Labels        map[string]string
	Cordoned      string
	Unschedulable bool
	Unfit         []string
}

func outcomeOf(d decision) outcome {
	o := outcome{Action: d.action.String(), Unfit: d.unfit}
	if d.worker != nil {
		o.Labels, o.Unschedulable = d.worker.Labels, d.worker.Spec.Unschedulable
		o.Cordoned = d.worker.Annotations[v1alpha1.AnnotationCordonedFor]
	}
	return o
}

func TestDecide(t *testing.T) {
	type m = map[string]string
	follows := func(keys string, more ...string) m {
		annotations := m{v1alpha1.AnnotationClusterProfile: origin, v1alpha1.AnnotationClusterProfileLabels: keys}
		for i := 0; i+1 < len(more); i += 2 {
			annotations[more[i]] = more[i+1]
		}
		return annotations
	}
	cordoned := follows("", v1alpha1.AnnotationCordonedFor, v1alpha1.ReasonClusterProfileMissing)
	deleted := workerWith(follows(""), nil, false)
	deleted.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		reason  string
		profile *inventory.ClusterProfile
		worker  *v1alpha1.WorkerCluster
		want    outcome
	}{
		"New": {
			reason:  "A profile becomes a worker with the labels of the profile, and the properties that were asked for.",
			profile: profileWith(m{"region": "east"}, inventory.Property{Name: "gpu", Value: "h100"}, inventory.Property{Name: "nodes", Value: "7"}),
			want:    outcome{Action: "create", Labels: m{"region": "east", "gpu": "h100"}},
		},
		"ForgedMarks": {
			reason: "Nothing under trainyard.dev/ comes from an inventory: these keys mean something to the manager.",
			profile: profileWith(m{"trainyard.dev/x": "1", "decision.trainyard.dev/y": "Delete", "example.com/z": "1"},
				inventory.Property{Name: "trainyard.dev/gpu", Value: "1"}),
			want: outcome{Action: "create", Labels: m{"example.com/z": "1"}},
		},
		"PropertyThatIsNoLabel": {
			reason:  "A value that no label can have is left out, and named.",
			profile: profileWith(nil, inventory.Property{Name: "gpu", Value: "NVIDIA H100 80 GB"}),
			want:    outcome{Action: "create", Labels: m{}, Unfit: []string{"gpu"}},
		},
		"LabelBeforeProperty": {
			reason:  "A label goes before a property of its name.",
			profile: profileWith(m{"gpu": "h200"}, inventory.Property{Name: "gpu", Value: "h100"}),
			want:    outcome{Action: "create", Labels: m{"gpu": "h200"}},
		},
		"OfAnAdmin": {
			reason:  "A WorkerCluster that an admin made is not touched.",
			profile: profileWith(m{"region": "east"}),
			worker:  workerWith(nil, m{"region": "west"}, false),
			want:    outcome{Action: "refuse"},
		},
		"OfAnotherProfile": {
			reason:  "A WorkerCluster of a profile in another namespace is not touched.",
			profile: profileWith(m{"region": "east"}),
			worker:  workerWith(m{v1alpha1.AnnotationClusterProfile: "elsewhere/east"}, nil, false),
			want:    outcome{Action: "refuse"},
		},
		"LabelsFollow": {
			reason:  "Labels that the profile had go with it, and labels of an admin stay.",
			profile: profileWith(m{"tier": "a"}),
			worker:  workerWith(follows("region,tier"), m{"region": "east", "tier": "b", "mine": "1"}, false),
			want:    outcome{Action: "follow", Labels: m{"tier": "a", "mine": "1"}},
		},
		"NothingChanged": {
			reason:  "Deciding again changes nothing.",
			profile: profileWith(m{"tier": "a"}),
			worker:  workerWith(follows("tier"), m{"tier": "a", "mine": "1"}, true),
			want:    outcome{Action: "leave"},
		},
		"Gone": {
			reason: "A worker whose profile is gone is cordoned.",
			worker: workerWith(follows("tier"), m{"tier": "a"}, false),
			want:   outcome{Action: "cordon", Labels: m{"tier": "a"}, Cordoned: v1alpha1.ReasonClusterProfileMissing, Unschedulable: true},
		},
		"GoneAndUncordoned": {
			reason: "An admin who uncordons a worker without a profile has the last word.",
			worker: workerWith(cordoned, nil, false),
			want:   outcome{Action: "leave"},
		},
		"GoneAndCordonedByAnAdmin": {
			reason: "The cordon of an admin is not taken over, so that the return of the profile does not end it.",
			worker: workerWith(follows(""), nil, true),
			want:   outcome{Action: "leave"},
		},
		"NeverThere": {
			reason: "A worker of an admin needs no profile.",
			worker: workerWith(nil, nil, false),
			want:   outcome{Action: "leave"},
		},
		"Back": {
			reason:  "A profile that is back ends the cordon.",
			profile: profileWith(nil),
			worker:  workerWith(cordoned, nil, true),
			want:    outcome{Action: "uncordon", Labels: m{}},
		},
		"BackAndCordonedByAnAdmin": {
			reason:  "A profile that is back does not end the cordon of an admin.",
			profile: profileWith(nil),
			worker:  workerWith(follows(""), nil, true),
			want:    outcome{Action: "leave"},
		},
		"WorkerGoes": {
			reason:  "A WorkerCluster that is being deleted is left alone.",
			profile: profileWith(m{"tier": "a"}),
			worker:  deleted,
			want:    outcome{Action: "leave"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := outcomeOf(decide(observation{
				origin: origin, profile: tc.profile, worker: tc.worker, property: func(name string) bool { return name != "nodes" },
			}))
			check.Diff(t, tc.want, got, tc.reason)
		})
	}
}

// A WorkerCluster that is made of a profile has everything that the next decision needs: it changes nothing.
func TestDecideAgain(t *testing.T) {
	seen := observation{
		origin: origin, profile: profileWith(map[string]string{"region": "east", "a/b": ""}), property: func(string) bool { return true },
	}
	seen.worker = decide(seen).worker
	check.Equal(t, leave, decide(seen).action, "deciding again")
	profile := seen.profile
	seen.profile = nil
	seen.worker = decide(seen).worker
	check.Equal(t, leave, decide(seen).action, "deciding again without a profile")
	seen.profile = profile
	seen.worker = decide(seen).worker
	if again := decide(seen); again.action != leave || seen.worker.Spec.Unschedulable {
		t.Errorf("deciding again when it is back: %s, unschedulable %t", again.action, seen.worker.Spec.Unschedulable)
	}
}
