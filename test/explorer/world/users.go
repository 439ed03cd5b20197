// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

// What users and admins do.
const (
	// Create creates TrainJob Key with failover What. The job runs for the time For, and takes N seconds to stop.
	Create Op = "create"
	// Outrank is Create for a job that has another job stopped on the worker to which it comes.
	Outrank Op = "outrank"
	// Delete deletes the TrainJob, in the foreground if What says so.
	Delete Op = "delete"
	// Suspend and Resume set the TrainJob's spec.suspend.
	Suspend Op = "suspend"
	Resume  Op = "resume"
	// Relabel changes a label of the TrainJob, which comes to its copy. It is not drawn: the window in which it matters is
	// short.
	Relabel Op = "relabel"
	// DeleteDispatch deletes the TrainJob's Dispatch.
	DeleteDispatch Op = "delete-dispatch"
	// DeleteCopy deletes the job's copy on worker Who, SuspendCopy suspends it, UnlabelCopy removes the hub's label.
	DeleteCopy  Op = "delete-copy"
	SuspendCopy Op = "suspend-copy"
	UnlabelCopy Op = "unlabel-copy"
	// Foreign creates a TrainJob of this name on worker Who that is not the hub's.
	Foreign Op = "foreign"
	// Forget says that worker Who is to be forgotten. Cordon keeps new jobs off it. Uncordon ends that.
	Forget   Op = "forget"
	Cordon   Op = "cordon"
	Uncordon Op = "uncordon"
)

// labelTeam is a label of a user.
const labelTeam = "explorer/team"

// use has a user do something.
func (w *World) use(a Action) bool {
	key, k := keyOf(a.Key), w.worker(v1alpha1.ClusterName(a.Who))
	switch a.Op {
	case Create, Outrank:
		return w.createJob(a)
	case Delete:
		options := &client.DeleteOptions{}
		if a.What == "foreground" {
			policy := metav1.DeletePropagationForeground
			options.PropagationPolicy = &policy
		}
		return w.Hub.Delete(memory.TrainJob, key, options, "user") == nil
	case Suspend, Resume:
		w.Hub.Change(memory.TrainJob, key, "user", func(object client.Object) {
			object.(*unstructured.Unstructured).Object["spec"].(map[string]any)["suspend"] = a.Op == Suspend
		})
		return true
	case Relabel:
		w.Hub.Change(memory.TrainJob, key, "user", func(object client.Object) {
			team, _ := strconv.Atoi(object.GetLabels()[labelTeam])
			object.SetLabels(map[string]string{labelTeam: strconv.Itoa(team + 1)})
		})
		return true
	case DeleteDispatch:
		if d := asDispatch(w.Hub.Get(memory.Dispatch, key)); d != nil && d.Spec.Cluster == "" {
			delete(w.ledger.attempts, d.Spec.TrainJob.UID) // Its attempts are remembered by managers that live on, and by agents.
		}
		return w.Hub.Delete(memory.Dispatch, key, &client.DeleteOptions{}, "user") == nil
	case DeleteCopy:
		return !k.down && k.server.Delete(memory.TrainJob, key, &client.DeleteOptions{}, "user") == nil
	case SuspendCopy, UnlabelCopy:
		if k.down || isForeign(k.server.Get(memory.TrainJob, key)) {
			return false
		}
		k.server.Change(memory.TrainJob, key, "user", func(object client.Object) {
			if a.Op == UnlabelCopy { // Without its label the agent does not stop the copy. This is known.
				at := given{types.UID(object.GetLabels()[v1alpha1.LabelOriginUID]), object.GetAnnotations()[v1alpha1.AnnotationAttempt], a.Who}
				w.ledger.givenUp[at], w.ledger.untold[at] = true, true
			}
			edit(a.Op, object.(*unstructured.Unstructured))
		})
		return true
	case Foreign:
		return w.createForeign(k, a.Key)
	case Forget:
		w.Hub.Change(memory.WorkerCluster, client.ObjectKey{Name: a.Who}, "user", func(object client.Object) {
			object.SetAnnotations(map[string]string{v1alpha1.AnnotationForget: string(k.id)})
		})
		return true
	case Cordon, Uncordon:
		w.Hub.Change(memory.WorkerCluster, client.ObjectKey{Name: a.Who}, "user", func(object client.Object) {
			object.(*v1alpha1.WorkerCluster).Spec.Unschedulable = a.Op == Cordon
		})
		return true
	default:
		return false
	}
}

func edit(op Op, copy *unstructured.Unstructured) {
	if op == SuspendCopy {
		copy.Object["spec"].(map[string]any)["suspend"] = true
		return
	}
	annotations := copy.GetAnnotations()
	annotations[annotationOurs] = hubID
	copy.SetAnnotations(annotations)
	labels := copy.GetLabels()
	delete(labels, v1alpha1.LabelHub)
	copy.SetLabels(labels)
}

func isForeign(version *memory.Version) bool {
	return version == nil || version.Object.GetLabels()[v1alpha1.LabelHub] != hubID
}

func (w *World) createJob(a Action) bool {
	job := newJob(a.Key)
	annotations := map[string]string{
		annotationRuns: strconv.Itoa(int(a.For.Seconds())), annotationGrace: strconv.Itoa(a.N), annotationFailover: a.What,
	}
	if a.Op == Outrank {
		annotations[annotationOutranks] = "true"
	}
	job.SetAnnotations(annotations)
	job.Object["spec"].(map[string]any)["managedBy"] = managedBy
	_, err := w.Hub.Create(job, "user")
	return err == nil
}

func newJob(name string) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace(namespace)
	job.SetName(name)
	job.Object["spec"] = map[string]any{
		"suspend": false, "runtimeRef": map[string]any{"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "runtime"},
	}
	return job
}

func (w *World) createForeign(k *Worker, name string) bool {
	if k.down {
		return false
	}
	job := newJob(name)
	job.SetAnnotations(map[string]string{annotationRuns: "60", annotationGrace: "1"})
	_, err := k.server.Create(job, "user")
	return err == nil
}
