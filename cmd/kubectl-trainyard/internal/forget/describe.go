// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package forget

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/views/output"
)

// Consequences are the objects that depend on a worker.
type Consequences struct {
	Worker *v1alpha1.WorkerCluster
	// Dispatches are the Dispatches of the hub. Dispatches of other workers do not count.
	Dispatches []v1alpha1.Dispatch
	// Tombstones are the Tombstones of the hub.
	Tombstones []v1alpha1.Tombstone
	Now        time.Time
}

// Jobs returns the live Dispatches of this worker, sorted by namespace and name. Their jobs will be placed again.
func (c Consequences) Jobs() []v1alpha1.Dispatch {
	return c.there(func(d *v1alpha1.Dispatch) bool { return record.StateOf(d).Live() })
}

// deletions returns the Dispatches that will be deleted although their copies may still exist.
func (c Consequences) deletions() []v1alpha1.Dispatch {
	return c.there(func(d *v1alpha1.Dispatch) bool { return record.StateOf(d) == record.Leaving })
}

// there returns the Dispatches of this cluster for which is returns true.
func (c Consequences) there(is func(*v1alpha1.Dispatch) bool) []v1alpha1.Dispatch {
	var found []v1alpha1.Dispatch
	for i := range c.Dispatches {
		d := &c.Dispatches[i]
		same := d.Spec.ClusterID == "" || d.Spec.ClusterID == c.Worker.Status.ClusterID
		if d.Spec.Cluster == v1alpha1.ClusterName(c.Worker.Name) && same && is(d) {
			found = append(found, *d)
		}
	}
	slices.SortFunc(found, func(a, b v1alpha1.Dispatch) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found
}

// debts counts the deleted TrainJobs whose copies may still exist on the worker.
func (c Consequences) debts() (count int) {
	for i := range c.Tombstones {
		if c.Tombstones[i].Spec.ClusterID == c.Worker.Status.ClusterID {
			count++
		}
	}
	return count
}

// Describe prints what will happen.
func Describe(out io.Writer, c Consequences) error {
	var b bytes.Buffer
	worker := c.Worker
	fmt.Fprintf(&b, "WorkerCluster %s: %s. Its cluster has the ID %s.\n\n", worker.Name, state(c), worker.Status.ClusterID)
	fmt.Fprint(&b, "Forgetting it tells the hub that nothing runs on this cluster any more, and that the hub need not "+
		"wait for it. Nobody checks that.\n\n")
	if err := describeJobs(&b, "Its live jobs are started elsewhere at once, whatever their failover is", c.Jobs()); err != nil {
		return err
	}
	if err := describeJobs(&b, "Deleted jobs no longer wait for it", c.deletions()); err != nil {
		return err
	}
	if n := c.debts(); n > 0 {
		fmt.Fprintf(&b, "It may still have copies of deleted jobs: %d Tombstones name them, and stay.\n\n", n)
	}
	fmt.Fprintf(&b, `THE RISK: if the cluster is only cut off, its jobs go on there without the hub, while they run again elsewhere. Two runs of one job then
write to the same checkpoints, data and outside systems. So make sure first that it is switched off, or that its jobs' pods are gone.

If it returns, the hub deletes its copies of these jobs before it does anything else there, and it is no longer forgotten. The runs
elsewhere are not touched.
To take it back: kubectl annotate workercluster %s %s-
What has been started elsewhere by then stays there.
`, worker.Name, v1alpha1.AnnotationForget)
	_, err := out.Write(b.Bytes())
	return err
}

// state returns the state of the worker in the words of the hub.
func state(c Consequences) string {
	ready := meta.FindStatusCondition(c.Worker.Status.Conditions, v1alpha1.WorkerClusterReady)
	if ready == nil {
		return "the manager has not said anything about it yet"
	}
	text := ready.Reason
	if ready.Message != "" {
		text += ", " + ready.Message
	}
	if seen := c.Worker.Status.LastSeenTime; seen != nil {
		text += fmt.Sprintf("; last seen %s ago", output.Age(*seen, c.Now))
	}
	return text
}

func describeJobs(b *bytes.Buffer, what string, dispatches []v1alpha1.Dispatch) error {
	if len(dispatches) == 0 {
		fmt.Fprintf(b, "%s: none.\n\n", what)
		return nil
	}
	table := output.NewTable(output.Column{Name: "Namespace"}, output.Column{Name: "TrainJob"}, output.Column{Name: "Phase"},
		output.Column{Name: "Attempt"}, output.Column{Name: "Failover"})
	for i := range dispatches {
		d := &dispatches[i]
		output.Add(table, d.Namespace, d.Name, output.Or(string(d.Status.Phase), output.Unknown), d.Spec.Attempt,
			cmp.Or(d.Spec.Failover, v1alpha1.FailoverHold))
	}
	fmt.Fprintf(b, "%s:\n", what)
	if err := printers.NewTablePrinter(printers.PrintOptions{}).PrintObj(table, b); err != nil {
		return err
	}
	b.WriteByte('\n')
	return nil
}

// Refusal says why a worker must not be forgotten. The zero value permits it.
type Refusal struct {
	// Why is the reason, for the admin.
	Why string
	// Final is true for a worker that answers: the hub would see it again at once. Its jobs can be moved by a drain.
	Final bool
}

// RefusalOf returns why a worker should not be forgotten: it answers, or that is not known.
func RefusalOf(worker *v1alpha1.WorkerCluster) Refusal {
	ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
	switch {
	case ready == nil:
		return Refusal{Why: "the manager has not said anything about it yet"}
	case ready.Status == metav1.ConditionTrue:
		return Refusal{Why: "it is Ready", Final: true}
	}
	switch {
	case ready.Reason == v1alpha1.ReasonConnecting:
		return Refusal{Why: "the manager is just connecting to it"}
	case ready.Reason == v1alpha1.ReasonTrainJobAPIMissing:
		return Refusal{Why: "it answers (" + ready.Reason + ")"}
	case worker.Status.Answers():
		return Refusal{Why: "it answers (" + ready.Reason + ")", Final: true}
	}
	return Refusal{}
}

// IsForgotten is true for a worker that somebody has already told the hub to forget.
func IsForgotten(worker *v1alpha1.WorkerCluster) bool {
	return worker.Status.ClusterID != "" && worker.Annotations[v1alpha1.AnnotationForget] == string(worker.Status.ClusterID)
}
