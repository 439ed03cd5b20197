// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"fmt"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// countingWorker counts what is read from the worker's API server.
type countingWorker struct {
	*remote.Cluster
	reader *countingReader
}

// APIReader implements copies.Connection.
func (w countingWorker) APIReader() (client.Reader, error) { return w.reader, nil }

// A copy is made only where the worker has the runtime whose pods were counted, as far as that is known. If the runtime has
// been changed on the worker since, the attempt ends. The check reads nothing.
func TestRuntimeThatChangesOnItsWorker(t *testing.T) {
	own := func(digest string) dispatch.Comparison {
		return dispatch.Comparison{State: v1alpha1.RuntimeDiffers, Foreign: true, Demand: true, Own: &dispatch.RuntimeSpec{Digest: digest}}
	}
	pending := own("a")
	pending.State, pending.Demand = "", false
	const another = "another.1"
	for name, tc := range map[string]struct {
		reason string
		// counted is spec.counted.workerRuntime.
		counted string
		// known is what is known of the worker's runtime, nil for nothing. version is the version of the hub's runtime with which
		// it was compared, empty for the one that is there.
		known   *dispatch.Comparison
		version string
		// pending: no comparison is known of. gone: the worker has no runtime. uncounted: the Dispatch has no spec.counted.
		pending, gone, uncounted bool
		// waits: the copy waits first. ends: the attempt ends.
		waits, ends bool
	}{
		"Unchanged":    {reason: "the usual course", counted: "a", known: ptr.To(own("a"))},
		"Changed":      {reason: "it makes other pods now", counted: "a", known: ptr.To(own("b")), ends: true},
		"EqualNow":     {reason: "it makes the hub's pods now", counted: "a", known: &dispatch.Comparison{}, ends: true},
		"DiffersNow":   {reason: "it made the hub's pods", known: ptr.To(own("a")), ends: true},
		"Equal":        {reason: "the usual course", known: &dispatch.Comparison{}},
		"Gone":         {reason: "the hub's would come in its place", counted: "a", gone: true, ends: true},
		"GoneEqual":    {reason: "the hub's comes, which was counted", gone: true},
		"Unknown":      {reason: "nothing says that it has changed", counted: "a"},
		"Pending":      {reason: "a new version is being compared", counted: "a", known: &pending, pending: true, waits: true},
		"OlderHub":     {reason: "the hub's runtime has changed before the decision", known: &dispatch.Comparison{}, version: another, waits: true},
		"OlderHubOwn":  {reason: "it is still the runtime that was counted", counted: "a", known: ptr.To(own("a")), version: another, waits: true},
		"OlderRelease": {reason: "nobody knows what was counted", uncounted: true, known: ptr.To(own("a"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, ownRuntimeOf())
			onHub := s.ownRuntime(t)
			onWorker := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: onHub.Namespace, Name: onHub.Name}, Spec: *onHub.Spec.DeepCopy()}
			if !tc.gone {
				must(t, s.worker.Admin.Create(t.Context(), onWorker))
				s.there(t)
			}
			if !tc.uncounted {
				s.count(t, onHub)
				d := s.dispatch(t)
				d.Spec.Counted.WorkerRuntime = tc.counted
				must(t, s.Hub.Admin.Update(t.Context(), d))
			}
			compared := map[types.NamespacedName]dispatch.Comparison{}
			if tc.known != nil {
				known := *tc.known
				if known.Version = tc.version; tc.version == "" && !tc.pending {
					known.Version = fmt.Sprintf("%s.%d", onHub.UID, onHub.Generation)
				}
				compared[client.ObjectKeyFromObject(onHub)] = known
			}
			s.options.Runtimes = func() *dispatch.Runtimes { return dispatch.NewRuntimes(compared, true) }
			hubReads, workerReads := &countingReader{Reader: s.Hub.Admin}, &countingReader{Reader: s.worker.Admin}
			s.options.HubReader, s.options.Worker = hubReads, countingWorker{Cluster: s.worker.Connection, reader: workerReads}
			s.restart()
			s.Clock.Step(time.Minute) // The hub's caches are believed.

			result := s.reconcile(t)
			if tc.waits {
				if s.copy(t) != nil || result == (reconcile.Result{}) || len(s.dispatch(t).Status.History) > 0 {
					t.Fatalf("%s: the copy does not wait: %v", tc.reason, result)
				}
				s.Clock.Step(5 * time.Second) // A worker that cannot be asked keeps no job for longer.
				s.reconcile(t)
			}
			if tc.ends {
				check.Equal(t, nil, s.copy(t), "%s: there is a copy", tc.reason)
				s.expectEnd(t, v1alpha1.OutcomeRuntimeChanged, `TrainingRuntime "own" of worker "worker" has changed since the job was placed`)
				err := s.worker.Admin.Get(t.Context(), client.ObjectKeyFromObject(onWorker), onWorker)
				check.Equal(t, tc.gone, apierrors.IsNotFound(err), "%s: no runtime is on the worker", tc.reason)
				return
			}
			if s.copy(t) == nil {
				t.Fatalf("%s: there is no copy, and the status is %+v", tc.reason, s.dispatch(t).Status)
			}
			if !tc.gone { // The hub's is read to bring it.
				check.Equal(t, 0, hubReads.reads, "%s: reads of the hub's API server", tc.reason)
			}
			check.Equal(t, 0, workerReads.reads, "%s: reads of the worker's API server", tc.reason)
		})
	}
}
