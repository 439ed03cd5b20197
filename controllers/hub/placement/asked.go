// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
)

// annotationAsked on a Dispatch says in which circumstances the worker of the current attempt was asked, and in which
// circumstances workers have refused the job: "east=0123456789abcdef,west=...". A refusal counts only if the
// circumstances have not changed since. If they have, the worker is asked again at once. The annotation is written with
// the decision, so that it costs nothing, compares no clocks and outlives a restart.
const annotationAsked = "trainyard.dev/asked"

// askedLimit is how long, in bytes, annotationAsked may get: an object has 256 KiB for all its annotations. The refusal
// of a worker that is left out counts in any circumstances.
const askedLimit = 64 << 10

// digest is equal for things that are equal in JSON.
func digest(things ...any) string {
	hash := fnv.New64a()
	encoder := json.NewEncoder(hash)
	for _, thing := range things {
		_ = encoder.Encode(thing) // Maps are encoded in the order of their keys, and a hash takes everything, so there is no error.
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// digestOf sums up everything of a worker on which a refusal may depend.
func digestOf(worker *v1alpha1.WorkerCluster) string {
	var since metav1.Time
	if ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady); ready != nil {
		since = ready.LastTransitionTime // Other credentials, a worker that was away.
	}
	status := &worker.Status
	return digest(worker.UID, worker.Generation, status.ClusterID, status.KubernetesVersion, status.Trainer, since)
}

// circumstancesOf sums up everything of a job on which a refusal may depend: what reaches the copy, or selects workers.
// It is made of the job, its runtime, its policy and its last retry. What stays on the hub does not count: an admissionTimeout that an
// admin sets because a worker lets the job wait must not send the job to the same worker first.
func circumstancesOf(seen *observation, job *queue.Job, runtime string) string {
	policy, _, err := dispatch.SelectPolicy(job.Policies, job.Job)
	var rules v1alpha1.DispatchPolicySpec
	var expression string
	if err == nil && policy != nil {
		rules, expression = rulesAtWorker(policy.Spec), keyOf(policy.Expression, &job.Job)
	}
	things := []any{seen.job.GetGeneration(), atWorker(seen.job.GetLabels()), atWorker(seen.job.GetAnnotations()), runtime, rules, expression}
	if retry := retryOf(seen.dispatch); !retry.at.IsZero() { // Without a retry, the digest stays what older releases wrote.
		things = append(things, retry.at)
	}
	return digest(things...)
}

// selectsWorkers says whether an annotation of users selects workers or nodes.
func selectsWorkers(annotation string) bool {
	return annotation == v1alpha1.AnnotationClusters || annotation == v1alpha1.AnnotationData || annotation == v1alpha1.AnnotationTopology
}

// atWorker returns the labels or annotations of a job that reach its copy, and those that select workers and nodes.
func atWorker(all map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		if selectsWorkers(key) || !strings.HasPrefix(key, v1alpha1.KeyPrefix) && !v1alpha1.IsTrackingName(key) {
			kept[key] = value
		}
	}
	return kept
}

// rulesAtWorker returns a policy's spec without what says nothing about workers and copies: which jobs it is for, in
// which order they wait and are preferred on workers, and when they leave a worker or the hub. A new field counts unless
// it is named here.
func rulesAtWorker(spec v1alpha1.DispatchPolicySpec) v1alpha1.DispatchPolicySpec {
	spec.Jobs, spec.Priority = v1alpha1.JobSelector{}, 0
	spec.Scoring, spec.AddNodes, spec.Queueing, spec.ReserveAfter = nil, "", "", nil
	spec.Preemption, spec.PriorityClasses = "", nil
	spec.MaxConcurrentMoves, spec.AdmissionTimeout, spec.GiveUpAfter, spec.UnmanagedJobs = nil, nil, nil, ""
	spec.Retention, spec.TTLSecondsAfterFinished = nil, nil
	if spec.Checkpoint != nil {
		spec.Checkpoint = &v1alpha1.Checkpointing{Grace: spec.Checkpoint.Grace}
	}
	return spec
}

// asked is the value of annotationAsked by worker.
type asked map[v1alpha1.ClusterName]string

func askedOf(d *v1alpha1.Dispatch) asked {
	a := asked{}
	if d == nil {
		return a
	}
	for entry := range strings.SplitSeq(d.Annotations[annotationAsked], ",") {
		if worker, circumstances, ok := strings.Cut(entry, "="); ok {
			a[v1alpha1.ClusterName(worker)] = circumstances
		}
	}
	return a
}

// noteEnd says that the worker of an attempt that has just ended refused the job in these circumstances, and not in the
// circumstances in which the job was placed there: the attempt may have ended long after that.
func noteEnd(d *v1alpha1.Dispatch, circumstances string) {
	past := askedOf(d)
	if past[d.Spec.Cluster] == "" || circumstances == "" {
		return // It was written by an older version, or the job's demand is not known.
	}
	past[d.Spec.Cluster] = circumstances
	entries := make([]string, 0, len(past))
	for worker, then := range past {
		entries = append(entries, fmt.Sprintf("%s=%s", worker, then))
	}
	slices.Sort(entries)
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, annotationAsked, strings.Join(entries, ","))
}

// noteAsked adds the worker of the current attempt, and drops the workers that have not refused the job.
func noteAsked(d *v1alpha1.Dispatch, circumstances string) {
	past := askedOf(d)
	current := fmt.Sprintf("%s=%s", d.Spec.Cluster, circumstances)
	var entries []string
	for _, refusal := range d.Status.Refusals {
		if past[refusal.Cluster] != "" && refusal.Cluster != d.Spec.Cluster {
			entries = append(entries, fmt.Sprintf("%s=%s", refusal.Cluster, past[refusal.Cluster]))
		}
	}
	slices.Sort(entries)
	entries = append(record.BoundEntries(entries, askedLimit-len(current)), current)
	slices.Sort(entries)
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, annotationAsked, strings.Join(entries, ","))
}

// exclusions are the workers that refused the job lately, in the circumstances that there are now, or domains of workers.
// A worker on which somebody deleted the copy once is not among them.
func exclusions(
	d *v1alpha1.Dispatch, now time.Time, circumstances func(v1alpha1.ClusterName) string,
) (map[v1alpha1.ClusterName]dispatch.Exclusion, time.Duration) {
	exclusions, past := map[v1alpha1.ClusterName]dispatch.Exclusion{}, askedOf(d)
	var first time.Duration
	for _, refusal := range d.Status.Refusals {
		count := refusal.Count
		if record.EndingOf(refusal.Outcome).Pardoned {
			count--
		}
		left := record.Backoff(count) - now.Sub(refusal.Last.Time)
		if then := past[refusal.Cluster]; left <= 0 || then != "" && then != circumstances(refusal.Cluster) {
			continue
		}
		exclusions[refusal.Cluster] = dispatch.Exclusion{
			Reason: string(refusal.Outcome), Message: refusal.Message, Domain: ptr.Deref(refusal.Domain, v1alpha1.Domain{}),
		}
		if first == 0 || left < first {
			first = left
		}
	}
	return exclusions, first
}
