// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// DataURI is a URI of data that a job reads.
type DataURI struct {
	URI string
	// From is the annotation, or the path of the field, that names it.
	From string
	// Required: the job runs only where the data is near.
	Required bool
}

// The words of the annotation v1alpha1.AnnotationData.
const (
	dataRequired  = "required="
	dataPreferred = "preferred="
)

const (
	// maxData is how long the annotation may be, and maxDataURI how long one of its URIs, in bytes.
	maxData, maxDataURI = 4096, 1024
	// mostData is how many URIs the annotation may name.
	mostData = 16
)

var (
	// dataScheme begins a URI, as Kubeflow Trainer demands it of storageUri.
	dataScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://.`)
	// dataPassword begins a URI with a password. url.Parse would refuse names of objects that are no URLs.
	dataPassword = regexp.MustCompile(`^[^/]*//[^/]*:[^/]*@`)
)

// ParseData returns the URIs of the annotation v1alpha1.AnnotationData. The error says what would be right, without the name
// of the annotation.
func ParseData(text string) ([]DataURI, error) {
	const usage = "must be required=URI or preferred=URI, or several of them separated by commas, such as preferred=s3://bucket/imagenet"
	if len(text) > maxData {
		return nil, fmt.Errorf("%s, with at most %d bytes; it has %d", usage, maxData, len(text))
	}
	var named []DataURI
	word := ""
	for part := range strings.SplitSeq(text, ",") {
		uri := strings.TrimSpace(part)
		for _, is := range []string{dataRequired, dataPreferred} {
			if rest, found := strings.CutPrefix(uri, is); found {
				word, uri = is, rest
				break
			}
		}
		if word == "" {
			return nil, fmt.Errorf("%s; it is %q", usage, Cut(text, maxDataURI))
		}
		if err := checkDataURI(uri); err != nil {
			return nil, fmt.Errorf("%q: %w", Cut(uri, maxDataURI), err)
		}
		named = append(named, DataURI{URI: uri, From: "annotation " + v1alpha1.AnnotationData, Required: word == dataRequired})
	}
	if len(named) > mostData {
		return nil, fmt.Errorf("must name at most %d URIs; it names %d", mostData, len(named))
	}
	return named, nil
}

func checkDataURI(uri string) error {
	switch {
	case !dataScheme.MatchString(uri):
		return errors.New("must be a URI such as s3://bucket/imagenet")
	case len(uri) > maxDataURI:
		return fmt.Errorf("must have at most %d bytes", maxDataURI)
	case strings.Contains(uri, "*"):
		return errors.New("must have no *: it names all that is below it")
	case strings.ContainsFunc(uri, isBlank):
		return errBlank
	case dataPassword.MatchString(uri):
		return errPassword
	}
	return nil
}

// DataOf returns the URIs of the data that a job reads: what its annotation names, where its initializers read from, and
// where it saves its checkpoints if checkpoints is set. Only those of the annotation can be required. The error is that of
// ParseData.
func DataOf(job *trainer.TrainJob, checkpoints bool) (data []DataURI, err error) {
	if text, annotated := job.Annotations[v1alpha1.AnnotationData]; annotated {
		if data, err = ParseData(text); err != nil {
			return nil, err
		}
	}
	prefer := func(uri, from string) {
		if dataScheme.MatchString(uri) {
			data = append(data, DataURI{URI: uri, From: from})
		}
	}
	if init := job.Spec.Initializer; init != nil {
		if init.Dataset != nil {
			prefer(ptr.Deref(init.Dataset.StorageUri, ""), "spec.initializer.dataset.storageUri")
		}
		if init.Model != nil {
			prefer(ptr.Deref(init.Model.StorageUri, ""), "spec.initializer.model.storageUri")
		}
	}
	if value, annotated := job.Annotations[v1alpha1.AnnotationCheckpoint]; annotated && checkpoints {
		if uri, err := CheckpointURI(value, job.UID, job.Namespace); err == nil {
			prefer(uri, "annotation "+v1alpha1.AnnotationCheckpoint)
		}
	}
	return data, nil
}
