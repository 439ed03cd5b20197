// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
)

// change is what a watch reported about one object.
type change struct {
	version int
	isNew   bool // this change created the object
	isGone  bool // this change removed the object
	object  client.Object
}

// history is all changes of the TrainJobs, JobSets, Jobs and pods of a namespace. All objects share one etcd, whose
// versions order changes of different kinds too.
type history struct {
	mu      sync.Mutex
	changes []change // under mu

	// deletions is when the API server answered the test's deletions of TrainJobs. The requests have the controller's.
	deletions map[types.UID]time.Time // under mu
	// startsBefore is how often the controller had been started when the history began.
	startsBefore int
}

var historyLists = []client.ObjectList{
	&trainer.TrainJobList{}, &jobsetv1alpha2.JobSetList{}, &batchv1.JobList{}, &corev1.PodList{},
}

// record begins the history of an empty namespace.
func (e *lifeEnvironment) record(t *testing.T, namespace string) *history {
	t.Helper()
	_, starts := e.requests.of(namespace)
	h := &history{deletions: map[types.UID]time.Time{}, startsBefore: starts}
	var watches sync.WaitGroup
	t.Cleanup(watches.Wait)
	for _, list := range historyLists {
		w := e.watchAll(t, list, namespace)
		t.Cleanup(w.Stop)
		watches.Go(func() {
			for event := range w.ResultChan() {
				check.Equal(t, nil, h.add(event), "watch of %T", list)
			}
		})
	}
	return h
}

// watchAll watches the objects of a namespace from now on. The API server silently ends a watch whose client is too
// slow. So the watch resumes at its last version.
func (e *lifeEnvironment) watchAll(t *testing.T, list client.ObjectList, namespace string) watch.Interface {
	t.Helper()
	newList := func() client.ObjectList { return list.DeepCopyObject().(client.ObjectList) }
	now := newList()
	check.Must(t, e.List(t.Context(), now, client.InNamespace(namespace)))
	watches := &toolscache.ListWatch{WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		return e.watcher.Watch(ctx, newList(), client.InNamespace(namespace), &client.ListOptions{Raw: &opts})
	}}
	// The watch must outlive the test's context. The end of the context would be an error to the watch.
	w, err := watchtools.NewRetryWatcherWithContext(context.Background(), now.GetResourceVersion(), watches)
	check.Must(t, err)
	return w
}

func (h *history) add(event watch.Event) error {
	object, ok := event.Object.(client.Object)
	if !ok {
		return fmt.Errorf("%s: %v", event.Type, event.Object)
	}
	version, err := strconv.Atoi(object.GetResourceVersion())
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, change{version, event.Type == watch.Added, event.Type == watch.Deleted, object})
	return nil
}

// all returns the changes in order.
func (h *history) all() []change {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(h.changes), func(a, b change) int { return a.version - b.version })
}

func (h *history) deleted(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, again := h.deletions[uid]; !again {
		h.deletions[uid] = time.Now()
	}
}

// catchUp waits until the watches have reported every change so far.
func (h *history) catchUp(t *testing.T, e *lifeEnvironment, namespace string) {
	t.Helper()
	eventually(t, "watches", func(g gomega.Gomega) {
		told := map[types.UID]string{}
		for _, c := range h.all() {
			told[c.object.GetUID()] = versionOf(c.object)
			if c.isGone {
				delete(told, c.object.GetUID())
			}
		}
		there := map[types.UID]string{}
		for _, list := range historyLists {
			list = list.DeepCopyObject().(client.ObjectList)
			g.Expect(e.List(t.Context(), list, client.InNamespace(namespace))).To(gomega.Succeed())
			g.Expect(meta.EachListItem(list, func(o apiruntime.Object) error {
				there[o.(client.Object).GetUID()] = versionOf(o.(client.Object))
				return nil
			})).To(gomega.Succeed())
		}
		g.Expect(cmp.Diff(there, told)).To(gomega.BeEmpty())
	})
}

func versionOf(object client.Object) string {
	return fmt.Sprintf("%T %s at version %s", object, object.GetName(), object.GetResourceVersion())
}

// checks has a check of the history for each promise. A check returns the violations of its promise.
var checks = map[string]func(*history, []request, int) []string{
	"terminal is final":                       checkFinal,
	"no JobSet after the end":                 checkNoneAfterEnd,
	"no object while deleting":                checkNoneWhileDeleting,
	"one JobSet at a time":                    checkOneRuns,
	"no write of the status without a change": checkStatusWrites,
	"no JobSet applied without need":          checkApplies,
}

// violations returns each violation of a promise in the history of a namespace once.
func (h *history) violations(t *testing.T, e *lifeEnvironment, namespace string) (all []string) {
	t.Helper()
	h.catchUp(t, e, namespace)
	requests, starts := e.requests.of(namespace)
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		for _, violation := range checks[name](h, requests, 1+starts-h.startsBefore) {
			if violation = name + ": " + violation; !slices.Contains(all, violation) {
				all = append(all, violation)
			}
		}
	}
	return all
}

// check reports the violations of promises in the history of a namespace.
func (h *history) check(t *testing.T, e *lifeEnvironment, namespace string) {
	t.Helper()
	for _, violation := range h.violations(t, e, namespace) {
		t.Error(violation)
	}
}

// checkFinal: after Complete or Failed, the status never changes.
func checkFinal(h *history, _ []request, _ int) (violations []string) {
	ended := map[types.UID]*trainer.TrainJob{}
	for _, c := range h.all() {
		job, ok := c.object.(*trainer.TrainJob)
		if !ok {
			continue
		}
		if last := ended[job.UID]; last == nil && hasEnded(&job.Status) {
			ended[job.UID] = job
		} else if last != nil && !equality.Semantic.DeepEqual(last.Status, job.Status) {
			violations = append(violations, fmt.Sprintf("%s was over with %v, and then had %v", job.Name, last.Status, job.Status))
		}
	}
	return violations
}

// checkNoneAfterEnd: no JobSet is created for a TrainJob whose status says that it has ended.
func checkNoneAfterEnd(h *history, _ []request, _ int) (violations []string) {
	ended := map[types.UID]bool{}
	for _, c := range h.all() {
		switch o := c.object.(type) {
		case *trainer.TrainJob:
			ended[o.UID] = ended[o.UID] || hasEnded(&o.Status)
		case *jobsetv1alpha2.JobSet:
			if c.isNew && ended[ownerOf(o)] {
				violations = append(violations, fmt.Sprintf("a JobSet of %s was created after its end", o.Name))
			}
		}
	}
	return violations
}

// checkNoneWhileDeleting: a pass that creates a JobSet has read the TrainJob from the API server before. A deletion
// between that read and the creation cannot be avoided: no write can depend on another object. But the read must not
// have begun after the deletion was answered, because then it has seen the deletion. Other objects may be recreated
// without a read while the JobSet exists. If the TrainJob is deleted, they are deleted with it.
func checkNoneWhileDeleting(h *history, requests []request, _ int) (violations []string) {
	deleted := h.allDeletions(requests)
	reads := map[types.UID]time.Time{} // the start of each pass's last read of its TrainJob
	for _, r := range requests {
		if r.method == http.MethodGet && r.resource == "trainjobs" {
			reads[r.pass] = r.begun
		}
		if r.method != http.MethodPatch || r.code != http.StatusCreated {
			continue
		}
		read, hasRead := reads[r.pass]
		if !hasRead && r.resource == "jobsets" {
			violations = append(violations, fmt.Sprintf("JobSet %s was created without a read of the TrainJob", r.key))
		}
		if deletion, isDeleted := deleted[r.sent.owner()]; hasRead && isDeleted && deletion.Before(read) {
			violations = append(violations, fmt.Sprintf("%s %s was created %s after the TrainJob had been deleted",
				r.resource, r.key, r.begun.Sub(deletion)))
		}
	}
	return violations
}

// allDeletions returns the deletions by the test and by the controller.
func (h *history) allDeletions(requests []request) map[types.UID]time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	deleted := maps.Clone(h.deletions)
	for _, r := range requests {
		uid := r.sent.Preconditions.UID
		if _, known := deleted[uid]; r.method == http.MethodDelete && r.resource == "trainjobs" && r.code == http.StatusOK && !known {
			deleted[uid] = r.answered
		}
	}
	return deleted
}

// checkOneRuns: pods of two JobSets of one TrainJob never run at the same time. A pass that creates a JobSet has asked
// for the Jobs before. A controller that has not seen the deletion of a JobSet or Job may still make a Job or pod for
// it.
func checkOneRuns(h *history, requests []request, _ int) (violations []string) {
	asked, made, gone := jobsAsked(requests), h.versions(isNew), h.versions(isGone)
	owners := map[types.UID]types.UID{}                  // TrainJobs by JobSet
	running := map[types.UID]map[types.UID]*corev1.Pod{} // by TrainJob
	for _, c := range h.all() {
		if jobSet, ok := c.object.(*jobsetv1alpha2.JobSet); ok {
			owners[jobSet.UID] = ownerOf(jobSet)
		}
		pod, ok := c.object.(*corev1.Pod)
		if !ok {
			continue
		}
		owner := owners[jobSetOf(pod)]
		if running[owner] == nil {
			running[owner] = map[types.UID]*corev1.Pod{}
		}
		delete(running[owner], pod.UID)
		if c.isGone || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, other := range running[owner] {
			first, second := other, pod
			if made[jobSetOf(first)] > made[jobSetOf(second)] {
				first, second = second, first
			}
			job := metav1.GetControllerOf(first).UID
			seen, hasAsked := asked[jobSetOf(second)]
			isLate := hasAsked && made[job] > seen || gone[job] > 0 && made[first.UID] > gone[job]
			if jobSetOf(first) != jobSetOf(second) && !isLate {
				violations = append(violations, fmt.Sprintf("%s and %s ran at the same time, for two JobSets: the first one's Job is of version %d, "+
					"and whoever made the second JobSet knew the Jobs of version %d", first.Name, second.Name, made[job], seen))
			}
		}
		running[owner][pod.UID] = pod
	}
	return violations
}

// versions returns, by object, the versions of the changes for which a function is true.
func (h *history) versions(of func(change) bool) map[types.UID]int {
	versions := map[types.UID]int{}
	for _, c := range h.all() {
		if of(c) {
			versions[c.object.GetUID()] = c.version
		}
	}
	return versions
}

func isNew(c change) bool  { return c.isNew }
func isGone(c change) bool { return c.isGone }

func jobSetOf(pod *corev1.Pod) types.UID { return types.UID(pod.Labels[jobsetv1alpha2.JobSetUIDKey]) }

// jobsAsked returns, by created JobSet, the version of the list of Jobs that its creator had read.
func jobsAsked(requests []request) map[types.UID]int {
	byPass, byJobSet := map[types.UID]int{}, map[types.UID]int{}
	for _, r := range requests {
		switch {
		case r.method == http.MethodGet && r.resource == "jobs":
			byPass[r.pass] = r.listed
		case r.isApply("jobsets") && r.code == http.StatusCreated:
			if version, hasAsked := byPass[r.pass]; hasAsked {
				byJobSet[r.got.Metadata.UID] = version
			}
		}
	}
	return byJobSet
}

// checkStatusWrites: each patch of a status names a version and changes the object.
func checkStatusWrites(_ *history, requests []request, _ int) (violations []string) {
	for _, r := range requests {
		if r.resource != "trainjobs" || r.subresource != "status" {
			continue
		}
		before, after := r.sent.Metadata.ResourceVersion, r.got.Metadata.ResourceVersion
		switch {
		case before == "":
			violations = append(violations, fmt.Sprintf("the status of %s was patched whatever its version", r.key))
		case r.code == http.StatusOK && before == after:
			violations = append(violations, fmt.Sprintf("the status of %s was written at version %s without a change", r.key, before))
		}
	}
	return violations
}

// checkApplies: an apply of a JobSet may change nothing at most once for each spec of the JobSet, each spec of its
// TrainJob, and each start of the controller. After a start, the controller cannot know what was applied before.
func checkApplies(h *history, requests []request, starts int) (violations []string) {
	useful := map[string]bool{} // versions of JobSets whose change is not only a change of the status
	specs := map[types.UID]map[int64]bool{}
	last := map[types.UID]*jobsetv1alpha2.JobSet{}
	for _, c := range h.all() {
		uid := c.object.GetUID()
		if specs[uid] == nil {
			specs[uid] = map[int64]bool{}
		}
		specs[uid][c.object.GetGeneration()] = true
		if js, ok := c.object.(*jobsetv1alpha2.JobSet); ok {
			useful[js.ResourceVersion] = last[uid] == nil || equality.Semantic.DeepEqual(last[uid].Status, js.Status)
			last[uid] = js
		}
	}
	vain := map[types.UID]int{}
	owners := map[types.UID]types.UID{}
	for _, r := range requests {
		if !r.isApply("jobsets") || r.code >= http.StatusMultipleChoices {
			continue
		}
		uid, version := r.got.Metadata.UID, r.got.Metadata.ResourceVersion
		owners[uid] = r.got.owner()
		if !useful[version] {
			vain[uid]++
		}
		useful[version] = false // The same version again means that the apply changed nothing.
	}
	for uid, n := range vain {
		if allowed := len(specs[uid]) + len(specs[owners[uid]]) + starts; n > allowed {
			violations = append(violations, fmt.Sprintf("JobSet %s was applied %d times in vain, allowed are %d", last[uid].Name, n, allowed))
		}
	}
	return violations
}
