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

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/cluster"
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

// bufferSize is how much of a text is looked at to tell JSON from YAML, in bytes.
const bufferSize = 4096

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

// Parse takes the objects out of a text in YAML or JSON. The source names the text in messages. It ignores kinds that a
// decision does not need, as Take does. The error is that of the first fault.
func Parse(source string, text io.Reader) (*Files, error) {
	files := &Files{}
	documents := yaml.NewYAMLOrJSONDecoder(text, bufferSize)
	for {
		var document runtime.RawExtension
		switch err := documents.Decode(&document); {
		case errors.Is(err, io.EOF):
			return files, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", source, err)
		case len(document.Raw) == 0 || string(document.Raw) == "null": // There is nothing between two separators.
			continue
		}
		object, err := runtime.Decode(unstructured.UnstructuredJSONScheme, document.Raw)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", source, err)
		}
		take := func(o runtime.Object) error { return files.Take(source, o.(*unstructured.Unstructured)) }
		if list, ok := object.(*unstructured.UnstructuredList); ok {
			err = list.EachListItem(take)
		} else {
			err = take(object)
		}
		if err != nil {
			return nil, err
		}
	}
}

// Take adds an object as its Go type. It ignores kinds that a decision does not need, unless they are of a group of which
// it needs a kind. The source names in messages where the object comes from.
func (f *Files) Take(source string, object *unstructured.Unstructured) error {
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
