// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
)

// lists has a worker list data, and brings the event to the reconciler.
func (s *scene) lists(t *testing.T, name v1alpha1.ClusterName, data ...v1alpha1.WorkerData) {
	t.Helper()
	before := s.WorkerCluster(t, name)
	s.worker(t, name, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Data = data })
	changed := event.UpdateEvent{ObjectOld: before, ObjectNew: s.WorkerCluster(t, name)}
	if !workerPredicate().Update(changed) {
		t.Error("the change of spec.data does not come through")
	}
	s.reconciler.watches.workers().Update(context.Background(), changed, nil)
}

func reads(annotation string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationData, annotation)
	}
}

// A job that requires data waits while no worker lists it, and says what and who would help. It goes on when a worker lists
// the data, and other jobs are placed meanwhile.
func TestRequiredData(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job", reads("required=s3://corpora/en"))
	d := s.expect(t, "job", v1alpha1.ReasonDataNotFound)
	const nobody = "DataElsewhere: spec.data of the worker has no prefix of s3://corpora/en, which the job requires"
	check.Diff(t, map[v1alpha1.ClusterName]string{east: nobody, west: nobody}, reasonsOf(d), "explanation")
	check.Equal(t, "no worker lists in spec.data all that the job requires by its annotation trainyard.dev/data: s3://corpora/en",
		d.Status.Conditions[0].Message, "why it waits")
	check.Equal(t, int32(0), d.Spec.Attempt, "attempts")
	s.Submit(t, "plain")
	if plain, _ := s.reconcile(t, "plain"); plain.Spec.Cluster == "" {
		t.Errorf("a job that requires nothing waits behind it: %v", reasonsOf(plain))
	}

	s.lists(t, west, v1alpha1.WorkerData{Prefix: "s3://corpora/e"}) // Another folder.
	s.expect(t, "job", v1alpha1.ReasonDataNotFound)
	s.drain()
	s.lists(t, west, v1alpha1.WorkerData{Prefix: "s3://corpora/", Cost: 100})
	if !s.drain()[s.Key("job")] {
		t.Fatal("nobody looks at the job again")
	}
	d, _ = s.reconcile(t, "job")
	check.Equal(t, west, d.Spec.Cluster, "the worker that lists the data: %v", reasonsOf(d))

	s.Submit(t, "large", reads("required=s3://corpora/en"), func(job *trainer.TrainJob) { job.Spec.Trainer.NumNodes = new(int32(9)) })
	d = s.expect(t, "large", v1alpha1.ReasonNoFit)
	check.Equal(t, nobody+"; west lists all that it requires", reasonsOf(d)[east], "why not east")
	s.reconciler.watches.workers().Delete(context.Background(), event.DeleteEvent{Object: s.WorkerCluster(t, west)}, nil)
	if !s.drain()[s.Key("large")] {
		t.Error("nobody looks at the job again when the worker is gone that lists the data")
	}
	if holders := s.reconciler.needs.data.now().Locate(dispatch.Reads{Required: []string{"s3://corpora/en"}}).Holders; len(holders) > 0 {
		t.Errorf("the worker that is gone is still known: %v", holders)
	}
}

// The score brings a job to its data, whatever names the data. Without the score nothing does.
func TestDataLocality(t *testing.T) {
	s := newScene(t)
	s.lists(t, east, v1alpha1.WorkerData{Prefix: "s3://corpora", Cost: 10}, v1alpha1.WorkerData{Prefix: "s3://ckpt", Cost: 80})
	s.lists(t, west, v1alpha1.WorkerData{Prefix: "s3://models"}, v1alpha1.WorkerData{Prefix: "s3://ckpt"})
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{
		Scoring: []v1alpha1.Score{{Name: v1alpha1.ScoreDataLocality}}, Checkpoint: &v1alpha1.Checkpointing{},
	})
	initializer := func(dataset, model string) func(*trainer.TrainJob) {
		return func(job *trainer.TrainJob) {
			job.Spec.Initializer = &trainer.Initializer{
				Dataset: &trainer.DatasetInitializer{StorageUri: &dataset}, Model: &trainer.ModelInitializer{StorageUri: &model},
			}
		}
	}
	for i, test := range []struct {
		reason   string
		change   func(*trainer.TrainJob)
		worker   v1alpha1.ClusterName
		decision string
	}{
		{"the annotation", reads("preferred=s3://corpora/en"), east, "score 90: DataLocality 90 (s3://corpora costs 10); "},
		{"what the initializers read", initializer("hf://org/set", "s3://models/llm"), west,
			"score 50: DataLocality 50 (s3://models costs 0, 1 not listed by any worker); "},
		{"where the checkpoints are", func(job *trainer.TrainJob) {
			metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationCheckpoint, "s3://ckpt/$(UID)")
		}, west, "score 100: DataLocality 100 (s3://ckpt costs 0); "},
		{"what the job requires counts first", func(job *trainer.TrainJob) {
			initializer("s3://models/a", "s3://models/b")(job)
			reads("required=s3://corpora/en")(job)
		}, east, "score 30: DataLocality 30 (s3://corpora costs 10, s3://models is not listed); "},
	} {
		name := fmt.Sprint("job-", i)
		s.Submit(t, name, test.change)
		d, _ := s.reconcile(t, name)
		decision := d.Annotations[v1alpha1.AnnotationDecision]
		if d.Spec.Cluster != test.worker || !strings.HasPrefix(decision, test.decision) {
			t.Errorf("%s: the job is on %q: %q; want %q: %q", test.reason, d.Spec.Cluster, decision, test.worker, test.decision)
		}
		s.report(t, d, v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.OutcomeComplete)
	}

	before := policy.DeepCopy()
	policy.Spec.Scoring = []v1alpha1.Score{{Name: v1alpha1.ScorePreference, Order: []v1alpha1.ClusterName{west}}}
	check.Must(t, s.Hub.Admin.Patch(t.Context(), policy, client.MergeFrom(before)))
	job := s.Submit(t, "other", reads("preferred=s3://corpora/en"))
	d, _ := s.reconcile(t, "other")
	check.Equal(t, west, d.Spec.Cluster, "the worker by another score")
	_, warnings, err := NewReviewer(s.reconciler, nil).Review(t.Context(), job)
	check.Must(t, err)
	check.Diff(t, []string{"metadata.annotations[trainyard.dev/data]: what it prefers has no effect, because DispatchPolicy " + policy.Name +
		", which applies to the job, does not have the score DataLocality in spec.scoring"}, warnings, "warnings")
}

// The data of a job means nothing: that is a fault of the job, in words, and no worker gets it.
func TestInvalidData(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job", reads("s3://corpora"))
	d := s.expect(t, "job", v1alpha1.ReasonInvalidData)
	if message := d.Status.Conditions[0].Message; !strings.HasPrefix(message, "annotation trainyard.dev/data: must be required=URI or preferred=URI") {
		t.Errorf("the message is %q", message)
	}
}

// A review knows what the WorkerClusters list, also on a standby, which watches none.
func TestReviewOfData(t *testing.T) {
	s := newScene(t)
	s.worker(t, east, func(worker *v1alpha1.WorkerCluster) {
		worker.Spec.Data = []v1alpha1.WorkerData{{Prefix: "s3://corpora"}}
	})
	job := s.Submit(t, "job", reads("required=s3://corpora/en"))
	_, warnings, err := NewReviewer(s.reconciler, nil).Review(t.Context(), job)
	check.Must(t, err)
	check.Equal(t, 0, len(warnings), "warnings: %q", warnings)
}

// The API server refuses data that can never be the prefix of a URI.
func TestDataOfTheAPI(t *testing.T) {
	s := newScene(t)
	prefixes := func(prefixes ...string) (data []v1alpha1.WorkerData) {
		for _, prefix := range prefixes {
			data = append(data, v1alpha1.WorkerData{Prefix: prefix})
		}
		return data
	}
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprint("s3://bucket-", i)
	}
	const form = "must begin with a scheme, as s3://bucket/folder does, have no white space, and have * at its end only"
	for name, test := range map[string]struct {
		data []v1alpha1.WorkerData
		want string
	}{
		"Forms":      {data: prefixes("s3://", "s3://bucket", "s3://bucket/", "s3://bucket/a*", "gs://b/day=1", "hdfs://nn:8020/a", "file:///mnt/nfs", "s3://b/ä")},
		"Most":       {data: prefixes(many[:64]...)},
		"TooMany":    {data: prefixes(many...), want: "must have at most 64 items"},
		"Twice":      {data: prefixes("s3://a", "s3://a"), want: "Duplicate value"},
		"Empty":      {data: prefixes(""), want: form},
		"Path":       {data: prefixes("/mnt/nfs"), want: form},
		"Star":       {data: prefixes("s3://*/a"), want: form},
		"TwoStars":   {data: prefixes("s3://a**"), want: form},
		"WhiteSpace": {data: prefixes("s3://a b"), want: form},
		"Newline":    {data: prefixes("s3://a\n"), want: form},
		"Password":   {data: prefixes("s3://key:secret@bucket"), want: "must have no password"},
		"Longest":    {data: prefixes("s3://" + strings.Repeat("x", 507))},
		"Long":       {data: prefixes("s3://" + strings.Repeat("x", 508)), want: "may not be more than 512"},
		"Dear":       {data: []v1alpha1.WorkerData{{Prefix: "s3://a", Cost: 101}}, want: "less than or equal to 100"},
		"Cheap":      {data: []v1alpha1.WorkerData{{Prefix: "s3://a", Cost: -1}}, want: "greater than or equal to 0"},
	} {
		t.Run(name, func(t *testing.T) {
			worker := &v1alpha1.WorkerCluster{Spec: v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: "/none"}, Data: test.data}}
			worker.GenerateName = "data-"
			err := s.Hub.Admin.Create(t.Context(), worker, client.DryRunAll)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("the API server says %v, want %q", err, test.want)
			}
		})
	}
}
