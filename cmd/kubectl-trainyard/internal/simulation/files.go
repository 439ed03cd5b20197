// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/cluster"
)

// kinds are the kinds that a decision needs.
var kinds = []schema.GroupVersionKind{
	trainer.SchemeGroupVersion.WithKind(trainer.TrainJobKind),
	trainer.SchemeGroupVersion.WithKind(trainer.ClusterTrainingRuntimeKind),
	trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind),
	v1alpha1.GroupVersion.WithKind("WorkerCluster"),
	v1alpha1.GroupVersion.WithKind("DispatchPolicy"),
	v1alpha1.GroupVersion.WithKind("Dispatch"),
	corev1.SchemeGroupVersion.WithKind("Namespace"),
	schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"),
}

var (
	// scheme has the kinds.
	scheme     = cluster.Scheme()
	strictJSON = kjson.NewSerializerWithOptions(
		kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{Strict: true})
)

// Files are the objects in some files.
type Files struct {
	items []item
	// Ignored says what else is in the files, one line each.
	Ignored []string
}

// item is an object of a file.
type item struct {
	client.Object
	// at names file and object, for messages.
	at string
}

// Read reads what kubectl reads: files, all files of folders, URLs, and "-" for standard input. It ignores kinds that a
// decision does not need, unless they are of a group of which it needs a kind. The error has a line for each fault.
func Read(stdin io.Reader, paths ...string) (*Files, error) {
	files, faults := &Files{}, &multierror.Error{ErrorFormat: perLine}
	for _, path := range paths {
		name, builder := path, resource.NewLocalBuilder().Unstructured().ContinueOnError().Flatten()
		if path == "-" {
			name = "standard input"
			// The builder decodes UTF-16 with a byte order mark, which PowerShell writes, in files only.
			builder.Stream(transform.NewReader(stdin, unicode.BOMOverride(unicode.UTF8.NewDecoder())), name)
		} else {
			builder.FilenameParam(false, &resource.FilenameOptions{Filenames: []string{path}})
		}
		err := builder.Do().Visit(func(info *resource.Info, err error) error {
			if err != nil {
				return err
			}
			if err := files.add(info.Source, info.Object.(*unstructured.Unstructured)); err != nil {
				faults = multierror.Append(faults, err)
			}
			return nil
		})
		if err != nil {
			faults = multierror.Append(faults, fmt.Errorf("read %s: %w", name, err))
		}
	}
	return files, faults.ErrorOrNil()
}

func perLine(faults []error) string {
	lines := make([]string, len(faults))
	for i, fault := range faults {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// add adds an object of a file, as its Go type.
func (f *Files) add(source string, object *unstructured.Unstructured) error {
	gvk := object.GroupVersionKind()
	name := cmp.Or(object.GetName(), object.GetGenerateName())
	at := fmt.Sprintf("%s (%s %q)", source, gvk.Kind, name)
	isOfGroup := func(known schema.GroupVersionKind) bool { return known.Group == gvk.Group && gvk.Group != "" }
	switch {
	case gvk.Version == "":
		return fmt.Errorf("%s: it has no apiVersion", at)
	case slices.Contains(kinds, gvk):
	case slices.ContainsFunc(kinds, isOfGroup):
		return fmt.Errorf("%s: there is no kind %q in %s; there are %s",
			source, gvk.Kind, gvk.GroupVersion(), known(isOfGroup))
	default:
		f.Ignored = append(f.Ignored, fmt.Sprintf("%s: %s %q of %s is ignored, because it does not matter for the decision",
			source, gvk.Kind, name, gvk.GroupVersion()))
		return nil
	}
	if name == "" {
		return fmt.Errorf("%s: metadata.name: it is required", at)
	}
	typed, err := decode(object)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	f.items = append(f.items, item{typed, at})
	return nil
}

// known names the known kinds of a group.
func known(isOfGroup func(schema.GroupVersionKind) bool) string {
	var names []string
	for _, kind := range kinds {
		if isOfGroup(kind) {
			names = append(names, fmt.Sprintf("%s %s", kind.GroupVersion(), kind.Kind))
		}
	}
	return strings.Join(names, ", ")
}

// decode is strict. But unknown fields in status and metadata come from newer API servers.
func decode(object *unstructured.Unstructured) (client.Object, error) {
	encoded, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	decoded, gvk, err := strictJSON.Decode(encoded, nil, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		faults := slices.DeleteFunc(strict.Errors(), func(fault error) bool {
			text := fault.Error()
			return strings.HasPrefix(text, `unknown field "status.`) || strings.HasPrefix(text, `unknown field "metadata.`)
		})
		if err = nil; len(faults) > 0 {
			err = runtime.NewStrictDecodingError(faults)
		}
	}
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return nil, fmt.Errorf("%s: it is a %s, not %s", wrong.Field, wrong.Value, strings.TrimLeft(wrong.Type.String(), "*"))
	}
	if err != nil {
		return nil, err
	}
	decoded.GetObjectKind().SetGroupVersionKind(*gvk)
	return decoded.(client.Object), nil
}
