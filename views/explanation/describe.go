// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/views/fleet"
	"github.com/trainyard/trainyard/views/jobs"
	"github.com/trainyard/trainyard/views/output"
)

// Detail is a line that says one thing about a job.
type Detail struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Section is a table about a job.
type Section struct {
	Name  string
	Table *metav1.Table
}

// Describe prints what is known of a job.
func Describe(out io.Writer, f Observation, wide bool) error {
	var b bytes.Buffer
	w := printers.GetNewTabWriter(&b)
	for _, fact := range f.Details() {
		_, _ = fmt.Fprintf(w, "%s:\t%s\n", fact.Name, printers.EscapeTerminal(fact.Value))
	}
	_ = w.Flush() // It writes to memory.
	for _, section := range f.Sections() {
		if err := indented(&b, section.Name, section.Table, wide); err != nil {
			return err
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

// Sections returns the tables about a job that have rows.
func (f Observation) Sections() []Section {
	all := []Section{{"Demand", f.demand()}, {"Workers", f.workers()}, {"Attempts", f.attempts()}, {"Warnings", f.warnings()}}
	return slices.DeleteFunc(all, func(s Section) bool { return len(s.Table.Rows) == 0 })
}

// Details returns a line for each fact, as kubectl describe prints them.
func (f Observation) Details() (details []Detail) {
	line := func(name, value string) {
		if value != "" {
			details = append(details, Detail{name, oneLine(value)})
		}
	}
	line("Name", f.Job.GetName())
	line("Namespace", f.Job.GetNamespace())
	line("Managed By", trainjobs.ManagedBy(f.Job))
	line("State", f.Headline())
	line("Message", f.message())
	line("Health", f.health())
	line("To Do", f.Advice())
	line("Drain", f.staying())
	line("Queue", f.queue())
	if d := f.Dispatch; d != nil {
		line("Decision", d.Annotations[v1alpha1.AnnotationDecision])
		if d.Spec.Domain != nil {
			line("Domain", d.Spec.Domain.String())
		}
		if d.Spec.Attempt > 0 {
			line("Attempt", fmt.Sprint(d.Spec.Attempt))
		}
		if d.Spec.Cluster != "" {
			line("Failover", string(cmp.Or(d.Spec.Failover, v1alpha1.FailoverHold)))
			if d.Spec.Runtime == v1alpha1.RuntimePin {
				line("Runtime", "Pin: made for the copy from the hub's, whatever the worker has under its name")
			}
		}
		line("Priority", fmt.Sprint(d.Spec.Priority))
	}
	line("Position", f.position())
	line("Policy", f.Policy)
	if f.Dispatch != nil {
		line("Needs", jobs.Needs(f.Dispatch.Spec.PodSets))
	}
	line("Data", f.Data)
	line("Cost", f.cost())
	line("Age", output.Age(f.Job.GetCreationTimestamp(), f.Now))
	return details
}

// oneLine joins the lines of a text, such as a worker's message.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// queue names the LocalQueue of the worker. The order of the jobs in it is only on the worker, which this command has
// no credentials for.
func (f Observation) queue() string {
	d := f.Dispatch
	if d == nil || d.Spec.Cluster == "" || ptr.Deref(d.Spec.LocalQueue, "") == "" {
		return ""
	}
	name := fmt.Sprintf("LocalQueue %s of worker %s", *d.Spec.LocalQueue, d.Spec.Cluster)
	if f.State() != Queued {
		return name
	}
	return fmt.Sprintf("%s; for the position there, ask the worker: kubectl --context %s get --raw "+
		"/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/%s/localqueues/%s/pendingworkloads",
		name, d.Spec.Cluster, d.Namespace, *d.Spec.LocalQueue)
}

func (f Observation) position() string {
	if f.Place == nil {
		return ""
	}
	switch before := f.Place.Position - 1; {
	case before < 0:
		return "none: it waits for something else than room"
	case before == 0:
		return fmt.Sprintf("1 of %d: no waiting job comes before it", f.Length)
	case before == 1:
		return fmt.Sprintf("2 of %d: one waiting job comes before it", f.Length)
	default:
		return fmt.Sprintf("%d of %d: %d waiting jobs come before it", before+1, f.Length, before)
	}
}

func indented(b *bytes.Buffer, name string, table *metav1.Table, wide bool) error {
	var text bytes.Buffer
	if err := printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(table, &text); err != nil {
		return err
	}
	fmt.Fprintf(b, "%s:\n", name)
	for line := range strings.Lines(text.String()) {
		b.WriteString("  " + strings.TrimRight(line, " \n") + "\n")
	}
	return nil
}

// demand returns a table with a row for each PodSet.
func (f Observation) demand() *metav1.Table {
	table := output.NewTable(output.Column{Name: "PodSet"}, output.Column{Name: "Pods"}, output.Column{Name: "Each-Requests"},
		output.Column{Name: "Role", Wide: true}, output.Column{Name: "Node-Selector", Wide: true})
	if f.Dispatch == nil {
		return table
	}
	for _, p := range f.Dispatch.Spec.PodSets {
		output.Add(table, p.Name, p.Count, jobs.Requests(p.Requests), output.Or(string(p.Role), output.None), labels.FormatLabels(p.NodeSelector))
	}
	return table
}

func (f Observation) workers() *metav1.Table {
	if f.Dispatch == nil || f.State() != Waiting && !record.WasGivenUp(f.Dispatch) {
		return output.NewTable()
	}
	return Workers(f.Dispatch, f.Clusters, f.Now)
}

func (f Observation) attempts() *metav1.Table {
	if f.Dispatch == nil {
		return output.NewTable()
	}
	columns := []output.Column{{Name: "Attempt"}, {Name: "Worker"}, {Name: "Ended"}, {Name: "Outcome"}}
	ran := record.LastRun(f.Dispatch) != nil
	if ran {
		columns = append(columns, output.Column{Name: "Ran"}, output.Column{Name: "Progress"})
	}
	table := output.NewTable(append(columns, output.Column{Name: "GPU-Hours", Wide: true}, output.Column{Name: "Share-Hours", Wide: true},
		output.Column{Name: "Message"})...)
	for i := range f.Dispatch.Status.History {
		a := &f.Dispatch.Status.History[i]
		cells := []any{a.Attempt, a.Cluster, output.Age(a.To, f.Now) + " ago", a.Outcome}
		if ran {
			cells = append(cells, ranFor(a), percentage(a.Progress))
		}
		output.Add(table, append(cells, hours(a.GPUSeconds), hours(a.ShareSeconds), oneLine(a.Message))...)
	}
	return table
}

// ranFor is how long an attempt ran, by the hub's clock.
func ranFor(a *v1alpha1.Attempt) string {
	if a.FirstRunningTime == nil {
		return output.None
	}
	return output.Age(*a.FirstRunningTime, a.To.Time)
}

// percentage is how complete the training was when its process reported last.
func percentage(progress *v1alpha1.Progress) string {
	if progress == nil || progress.ProgressPercentage == nil {
		return output.None
	}
	return fmt.Sprintf("%d%%", *progress.ProgressPercentage)
}

// cost sums up what the ended attempts in the history have cost.
func (f Observation) cost() string {
	if f.Dispatch == nil || len(f.Dispatch.Status.History) == 0 {
		return ""
	}
	requested := f.requested()
	if len(requested) == 0 {
		return ""
	}
	gpus, shares, unknown := int64(0), int64(0), 0
	for _, a := range f.Dispatch.Status.History {
		if a.GPUSeconds == nil && a.ShareSeconds == nil && !record.EndingOf(a.Outcome).Free {
			unknown++
		}
		gpus, shares = gpus+ptr.Deref(a.GPUSeconds, 0), shares+ptr.Deref(a.ShareSeconds, 0)
	}
	if gpus == 0 && shares == 0 && unknown == 0 {
		return ""
	}
	var parts []string
	if gpus > 0 || requested[accelerators.Device] {
		parts = append(parts, hours(&gpus)+" GPU-hours")
	}
	if shares > 0 || requested[accelerators.Share] {
		parts = append(parts, hours(&shares)+" share-hours")
	}
	cost := strings.Join(parts, " and ") + " in ended attempts"
	if unknown > 0 {
		cost += fmt.Sprintf("; not known for %d of %d attempts", unknown, len(f.Dispatch.Status.History))
	}
	return cost
}

// requested returns the units of the GPUs and similar devices that the job requests.
func (f Observation) requested() map[accelerators.Unit]bool {
	known, units := accelerators.Seen(f.Clusters), map[accelerators.Unit]bool{}
	for i := range f.Dispatch.Spec.PodSets {
		requests := f.Dispatch.Spec.PodSets[i].Requests
		for name := range requests {
			if unit := accelerators.UnitIn(known, name, requests); unit != "" {
				units[unit] = true
			}
		}
	}
	return units
}

func hours(seconds *int64) string {
	if seconds == nil {
		return output.None
	}
	return fmt.Sprintf("%.2f", float64(*seconds)/3600)
}

// Workers returns a table with a row for each worker in the explanation of a Dispatch, as Lines has them. Wide columns
// come from the given WorkerClusters.
func Workers(d *v1alpha1.Dispatch, clusters []v1alpha1.WorkerCluster, now time.Time) *metav1.Table {
	table := output.NewTable(output.Column{Name: "Worker"}, output.Column{Name: "Result"}, output.Column{Name: "Score"},
		output.Column{Name: "Ready", Wide: true}, output.Column{Name: "GPUs", Wide: true}, output.Column{Name: "Jobs", Wide: true},
		output.Column{Name: "Refusals", Wide: true}, output.Column{Name: "Message"})
	for _, line := range Lines(d) {
		score := any("-")
		if line.Score != nil {
			score = *line.Score
		}
		ready, gpus, running := any(output.Unknown), any(output.Unknown), any(output.Unknown)
		if at := slices.IndexFunc(clusters, func(c v1alpha1.WorkerCluster) bool { return c.Name == string(line.Worker) }); at >= 0 {
			ready, gpus, running = fleet.Ready(&clusters[at], now), fleet.GPUs(&clusters[at]), clusters[at].Status.Jobs
		}
		output.Add(table, line.Worker, line.Result, score, ready, gpus, running, line.Refusals, line.Message)
	}
	return table
}

// Line says why a job is on a worker, or is not.
type Line struct {
	Worker v1alpha1.ClusterName `json:"worker"`
	Result string               `json:"result"`
	Score  *int32               `json:"score,omitempty"`
	// Refusals is how often the worker has refused the job.
	Refusals int32  `json:"refusals,omitempty"`
	Message  string `json:"message"`
}

// Lines returns a line for each worker in the explanation of a Dispatch: first the chosen worker, then workers that fit,
// by score, then the others.
func Lines(d *v1alpha1.Dispatch) []Line {
	ranked := slices.Clone(d.Status.Explanation)
	slices.SortStableFunc(ranked, func(a, b v1alpha1.ClusterExplanation) int {
		return cmp.Or(cmp.Compare(rank(b, d), rank(a, d)), cmp.Compare(a.Cluster, b.Cluster))
	})
	lines := make([]Line, len(ranked))
	for i, e := range ranked {
		lines[i] = Line{Worker: e.Cluster, Result: e.Reason, Score: e.Score, Refusals: refusals(d, e.Cluster), Message: oneLine(withoutScore(e))}
		if e.Cluster == d.Spec.Cluster {
			lines[i].Result += " (chosen)"
		}
	}
	return lines
}

// withoutScore returns the message of an explanation without the score at its beginning, because the score has a
// column.
func withoutScore(e v1alpha1.ClusterExplanation) string {
	if e.Score == nil {
		return e.Message
	}
	return strings.TrimPrefix(e.Message, fmt.Sprintf("score %d: ", *e.Score))
}

// Message returns in one line why the job of a Dispatch is placed or waits. It is empty for a mere summary.
func Message(d *v1alpha1.Dispatch) string {
	if len(d.Status.Explanation) > 0 && v1alpha1.PlacedReasonOf(jobs.Reason(d)).SumsUp {
		return ""
	}
	return oneLine(jobs.Message(d))
}

// rank is higher for workers that are nearer to getting the job.
func rank(e v1alpha1.ClusterExplanation, d *v1alpha1.Dispatch) int32 {
	switch {
	case e.Cluster == d.Spec.Cluster:
		return 200
	case e.Score != nil:
		return 1 + *e.Score
	}
	return 0
}

// refusals returns how often a worker has refused the job.
func refusals(d *v1alpha1.Dispatch, worker v1alpha1.ClusterName) int32 {
	for _, refusal := range d.Status.Refusals {
		if refusal.Cluster == worker {
			return refusal.Count
		}
	}
	return 0
}
