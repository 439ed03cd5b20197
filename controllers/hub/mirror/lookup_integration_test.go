// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	trainercore "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/dependencies"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/webhooks/validation"
)

// lookingUser is the account that config/worker-lookup gives its rights to.
const lookingUser = "system:serviceaccount:trainyard-system:trainyard-hub"

// countedReader notes what is read of the worker's API server beside copies and what is left of them.
type countedReader struct {
	client.Reader
	read []string
	// refused: the connection knows that the worker does not let the hub look.
	refused bool
}

func (r *countedReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if meta, is := object.(*metav1.PartialObjectMetadata); is {
		r.read = append(r.read, meta.Kind+" "+key.Name)
	}
	return r.Reader.Get(ctx, key, object, options...)
}

// readsWith makes the mirror look for what pods name, with the rights that a user has on the worker.
func (s *scene) readsWith(t *testing.T, user string) *countedReader {
	t.Helper()
	cached, err := s.worker.Connection.Client()
	must(t, err)
	reader := &countedReader{Reader: splitReader{Reader: s.worker.Admin, limited: s.clientOf(t, user)}}
	s.options.Worker = stuckWorker{cached: cached, live: reader}
	checker, err := validation.New(t.Context(), validation.Options{
		Client: s.Hub.Admin, Live: s.Hub.Admin, Framework: validation.EmptyCluster{Client: s.Hub.Admin},
		NewRuntimes: func(ctx context.Context, c client.Client, i client.FieldIndexer) (map[string]trainerruntime.Runtime, error) {
			return trainercore.New(ctx, c, i, nil)
		},
	})
	must(t, err)
	s.options.LookUp = &mirror.LookUp{
		References: func(ctx context.Context, copy *unstructured.Unstructured) ([]dependencies.Reference, error) {
			job := &trainer.TrainJob{}
			must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(copy.Object, job))
			return checker.References(ctx, job)
		},
		Permitted: func() bool { return !reader.refused }, Refused: func() { reader.refused = true },
	}
	s.restart()
	return reader
}

// clientOf returns a client with the rights that a user has on the worker.
func (s *scene) clientOf(t *testing.T, user string) client.Client {
	t.Helper()
	config := rest.CopyConfig(s.worker.Cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	limited, err := client.New(config, client.Options{Scheme: s.Scheme})
	must(t, err)
	return limited
}

// splitReader reads metadata with limited rights, and the rest with all.
type splitReader struct {
	client.Reader
	limited client.Reader
}

func (r splitReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, is := object.(*metav1.PartialObjectMetadata); is {
		return r.limited.Get(ctx, key, object, options...)
	}
	return r.Reader.Get(ctx, key, object, options...)
}

// needy is the setting of a job whose runtime comes from the hub, and whose pods name a Secret.
func needy() setting {
	with := ownRuntimeOf()
	with.spec["trainer"] = map[string]any{"env": []any{map[string]any{
		"name": "HF_TOKEN", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "hf-token", "key": "token"}},
	}}}
	return with
}

// newNeedyScene is a scene in which the worker grants the rights of config/worker-lookup to the hub's account.
func newNeedyScene(t *testing.T, user string) (*scene, *countedReader) {
	t.Helper()
	s := newScene(t, needy())
	s.ownRuntime(t)
	must(t, s.worker.Cluster.ApplyFiles(t.Context(), "../../../config/worker-lookup/cluster_role.yaml",
		"../../../config/worker-lookup/cluster_role_binding.yaml"))
	reader := s.readsWith(t, user)
	if user == lookingUser { // The API server learns of the rights by a watch.
		eventually(t, "rights to look", func(g gomega.Gomega) {
			probe := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
			err := reader.Get(t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: "none"}, probe)
			g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue(), "%v", err)
		})
		reader.read = nil
	}
	return s, reader
}

// TestMissingNames: where no agent looks, the manager refuses by names. It reads only metadata, and says that keys were not
// checked.
func TestMissingNames(t *testing.T) {
	s, reader := newNeedyScene(t, lookingUser)
	s.reconcile(t)
	s.there(t)
	s.expectEnd(t, v1alpha1.OutcomeRejected, fmt.Sprintf(
		`worker "worker" lacks what the pods of the job name: Secret "hf-token" is not in namespace %q, and env HF_TOKEN of step node needs it; `+
			`keys not checked`, s.key.Namespace))
	if s.copy(t) != nil {
		t.Error("the copy was created")
	}
	check.Diff(t, []string{"Secret hf-token"}, reader.read, "reads")
	must(t, s.worker.Admin.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: "hf-token"}}))
	s.nextAttempt(t)
	if s.copy(t) == nil {
		t.Error("the copy was not created, although the Secret is there")
	}
}

// TestMissingNamesAreTried: no jobs are stopped for one that cannot run on the worker. The connection of the manager finds
// all kinds, also those that a dry run of a pod would find.
func TestMissingNamesAreTried(t *testing.T) {
	s := newTriedScene(t, needy())
	own := s.ownRuntime(t)
	pod := &own.Spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
	pod.ServiceAccountName, pod.PriorityClassName, pod.RuntimeClassName = "robot", "gold", ptr.To("sandbox")
	pod.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "a", ResourceClaimName: ptr.To("a")}, {Name: "b", ResourceClaimTemplateName: ptr.To("b")},
	}
	pod.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "corpus"},
	}}}
	must(t, s.Hub.Admin.Update(t.Context(), own))
	s.readsWith(t, lookingUser)
	s.options.Worker = s.worker.Connection // With all rights.
	s.restart()
	s.ask(t)
	s.scene.reconcile(t)
	check.Equal(t, 1, len(s.answers), "answers")
	for _, words := range []string{
		`Secret "hf-token" is not in`, `PriorityClass "gold" is not there`, `RuntimeClass "sandbox" is not there`, `ServiceAccount "robot" is not in`,
		`ResourceClaim "a" is not in`, `ResourceClaimTemplate "b" is not in`, `PersistentVolumeClaim "corpus" is not in`,
	} {
		if !strings.Contains(s.answers[0], words) {
			t.Errorf("the answer does not say %q: %s", words, s.answers[0])
		}
	}
}

// TestNamesAreNotLookedFor: nothing is looked for on a worker that is known not to let the hub look, and a worker that has
// taken the right back is asked for no second job. A worker's own runtime may name something else than the hub's.
func TestNamesAreNotLookedFor(t *testing.T) {
	t.Run("Forbidden", func(t *testing.T) {
		s, reader := newNeedyScene(t, "nobody")
		reader.refused = true
		s.reconcile(t)
		s.there(t)
		if s.copy(t) == nil {
			t.Fatal("the copy was not created")
		}
		check.Equal(t, 0, len(reader.read), "reads %q", reader.read)
	})
	t.Run("TakenBack", func(t *testing.T) {
		s, reader := newNeedyScene(t, lookingUser)
		s.reconcile(t)
		s.expectEnd(t, v1alpha1.OutcomeRejected, `Secret "hf-token"`)
		reader.Reader, reader.read = splitReader{Reader: s.worker.Admin, limited: s.clientOf(t, "nobody")}, nil
		s.nextAttempt(t)
		if s.copy(t) == nil {
			t.Fatal("the copy was not created")
		}
		s.nextAttempt(t)
		check.Diff(t, []string{"Secret hf-token"}, reader.read, "reads for two copies")
	})
	t.Run("OwnRuntime", func(t *testing.T) {
		with := needy()
		delete(with.spec, "runtimeRef")
		s := newScene(t, with)
		reader := s.readsWith(t, lookingUser)
		s.reconcile(t)
		if s.copy(t) == nil {
			t.Fatal("the copy was not created")
		}
		check.Equal(t, 0, len(reader.read), "reads %q", reader.read)
	})
}
