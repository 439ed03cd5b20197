// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func TestParseData(t *testing.T) {
	const usage = "must be required=URI or preferred=URI"
	many := "required=s3://b" + strings.Repeat(",s3://b", 15)
	for name, test := range map[string]struct {
		text  string
		want  string // The URIs, with an exclamation mark where they are required.
		fault string
	}{
		"Preferred":     {text: "preferred=s3://bucket/imagenet", want: "s3://bucket/imagenet"},
		"Required":      {text: "required=gs://bucket", want: "gs://bucket!"},
		"Both":          {text: "required=s3://a/b, preferred=hf://org/model", want: "s3://a/b! hf://org/model"},
		"WordIsKept":    {text: "preferred=s3://a,s3://b,required=s3://c, s3://d", want: "s3://a s3://b s3://c! s3://d!"},
		"EqualsSign":    {text: "required=s3://a/day=1,s3://a/day=2", want: "s3://a/day=1! s3://a/day=2!"},
		"NoURL":         {text: "preferred=s3://a/100%", want: "s3://a/100%"},
		"User":          {text: "preferred=hdfs://me@nn:8020/a", want: "hdfs://me@nn:8020/a"},
		"ColonInPath":   {text: "preferred=s3://a/b:c@d", want: "s3://a/b:c@d"},
		"Most":          {text: many, want: strings.TrimSpace(strings.Repeat("s3://b! ", 16))},
		"Empty":         {fault: usage},
		"NoWord":        {text: "s3://bucket", fault: usage},
		"OtherWord":     {text: "wanted=s3://bucket", fault: usage},
		"Path":          {text: "required=/mnt/imagenet", fault: `"/mnt/imagenet": must be a URI such as s3://`},
		"SchemeOnly":    {text: "required=s3://", fault: "must be a URI such as s3://"},
		"Claim":         {text: "required=pvc:imagenet", fault: "must be a URI such as s3://"},
		"CommaAtTheEnd": {text: "required=s3://a,", fault: `"": must be a URI such as s3://`},
		"Star":          {text: "required=s3://a/*", fault: "must have no *"},
		"WhiteSpace":    {text: "required=s3://a b", fault: "no white space"},
		"Password":      {text: "required=s3://key:secret@a/100%", fault: "must have no password"},
		"TooMany":       {text: many + ",s3://b", fault: "at most 16 URIs; it names 17"},
		"LongURI":       {text: "required=s3://" + strings.Repeat("x", 1020), fault: "at most 1024 bytes"},
		"Long":          {text: "required=s3://" + strings.Repeat("x", 5000), fault: "with at most 4096 bytes; it has 5014"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := ParseData(test.text)
			check.Equal(t, test.want, shown(data), "ParseData(%.40q)", test.text)
			switch {
			case test.fault == "":
				check.Must(t, err)
			case err == nil || !strings.Contains(err.Error(), test.fault):
				t.Errorf("ParseData(%.40q) says %v, want %q", test.text, err, test.fault)
			}
		})
	}
}

func shown(data []DataURI) string {
	texts := make([]string, len(data))
	for i := range data {
		texts[i] = data[i].URI
		if data[i].Required {
			texts[i] += "!"
		}
	}
	return strings.Join(texts, " ")
}

// What a job reads counts wherever the job says it, and only its annotation can require it.
func TestDataOf(t *testing.T) {
	job := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", UID: "1-2", Annotations: map[string]string{
			v1alpha1.AnnotationData: "required=s3://a", v1alpha1.AnnotationCheckpoint: "s3://ckpt/$(NAMESPACE)/$(UID)",
		}},
		Spec: trainer.TrainJobSpec{Initializer: &trainer.Initializer{
			Dataset: &trainer.DatasetInitializer{StorageUri: new("hf://org/set")}, Model: &trainer.ModelInitializer{StorageUri: new("s3://models/llm")},
		}},
	}
	data, err := DataOf(job, true)
	check.Must(t, err)
	check.Diff(t, []DataURI{
		{URI: "s3://a", From: "annotation trainyard.dev/data", Required: true},
		{URI: "hf://org/set", From: "spec.initializer.dataset.storageUri"},
		{URI: "s3://models/llm", From: "spec.initializer.model.storageUri"},
		{URI: "s3://ckpt/team/1-2", From: "annotation trainyard.dev/checkpoint"},
	}, data, "what the job reads")
	data, err = DataOf(job, false)
	check.Must(t, err)
	check.Equal(t, "s3://a! hf://org/set s3://models/llm", shown(data), "without checkpoints")

	for _, change := range []func(){
		func() { job.Spec.Initializer.Dataset.StorageUri = new("") },
		func() { job.Spec.Initializer.Model.StorageUri = nil },
		func() { job.Annotations[v1alpha1.AnnotationCheckpoint] = "pvc:ckpt" },
		func() { job.Annotations[v1alpha1.AnnotationCheckpoint] = "/mnt" },
		func() { delete(job.Annotations, v1alpha1.AnnotationData) },
		func() { job.Spec.Initializer.Dataset, job.Spec.Initializer.Model = nil, nil },
		func() { job.Spec.Initializer = nil },
	} {
		change()
		_, err := DataOf(job, true)
		check.Must(t, err)
	}
	data, err = DataOf(job, true)
	check.Must(t, err)
	check.Equal(t, "", shown(data), "what a job reads that names nothing")
	job.Annotations[v1alpha1.AnnotationData] = "near"
	if _, err := DataOf(job, true); err == nil {
		t.Error("a bad annotation counts as none")
	}
}
