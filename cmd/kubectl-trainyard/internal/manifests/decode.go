// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/internal/spelling"
)

// decoder decodes JSON strictly.
type decoder struct {
	scheme     *runtime.Scheme
	serializer runtime.Decoder
}

func newDecoder(scheme *runtime.Scheme) decoder {
	return decoder{scheme: scheme, serializer: kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{Strict: true})}
}

// document reads one object, or the objects of a list.
func (r *reader) document(at string, document []byte) {
	encoded, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		r.fault(at, "%s", strings.TrimPrefix(oneLine(err.Error()), "yaml: "))
		return
	}
	r.object(at, encoded)
}

// envelope has the fields that all objects have.
type envelope struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

func (r *reader) object(at string, encoded []byte) {
	var e envelope
	if err := json.Unmarshal(encoded, &e); err != nil {
		r.fault(at, "it is not a Kubernetes object%s", inField(err))
		return
	}
	gvk := schema.FromAPIVersionAndKind(e.APIVersion, e.Kind)
	switch {
	case e.Kind == "" || e.APIVersion == "":
		r.fault(at, "it has no %s", missing(e))
	case strings.HasSuffix(e.Kind, "List") && (e.APIVersion == "v1" || slices.Contains(r.kinds, gvk.GroupVersion().WithKind(strings.TrimSuffix(e.Kind, "List")))):
		for i, item := range e.Items {
			r.object(fmt.Sprintf("%s, item %d", at, i+1), item)
		}
	case slices.Contains(r.kinds, gvk):
		r.decode(at, gvk, e, encoded)
	case slices.ContainsFunc(r.kinds, func(known schema.GroupVersionKind) bool { return known.Group == gvk.Group && gvk.Group != "" }):
		r.fault(at, "there is no kind %q in %s%s", e.Kind, e.APIVersion, r.meant(gvk))
	default:
		r.objects.Ignored = append(r.objects.Ignored, fmt.Sprintf("%s: %s %q of %s is ignored, because it does not matter "+
			"for the decision", at, e.Kind, e.Metadata.Name, e.APIVersion))
	}
}

func missing(e envelope) string {
	if e.APIVersion == "" {
		return "apiVersion"
	}
	return "kind"
}

// meant names the most similar known kind.
func (r *reader) meant(wrong schema.GroupVersionKind) string {
	var kinds []string
	for _, known := range r.kinds {
		if known.Group == wrong.Group && known.Kind == wrong.Kind {
			return fmt.Sprintf(" (did you mean %s?)", known.GroupVersion())
		}
		if known.Group == wrong.Group {
			kinds = append(kinds, known.Kind)
		}
	}
	if near := spelling.Nearest(wrong.Kind, kinds); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return "; there are " + strings.Join(kinds, ", ")
}

func (r *reader) decode(at string, gvk schema.GroupVersionKind, e envelope, encoded []byte) {
	at = fmt.Sprintf("%s (%s %q)", at, e.Kind, cmp.Or(e.Metadata.Name, e.Metadata.GenerateName))
	decoded, _, err := r.decoder.serializer.Decode(encoded, &gvk, nil)
	strict, isStrict := runtime.AsStrictDecodingError(err)
	switch {
	case isStrict:
		for _, fault := range strict.Errors() {
			r.strict(at, gvk, fault)
		}
	case err != nil:
		r.fault(at, "%s", typeFault(err))
		return
	}
	object, ok := decoded.(client.Object)
	if !ok {
		r.fault(at, "it is not an object with a name")
		return
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	r.objects.items = append(r.objects.items, Object{Object: object, At: at})
	if e.Metadata.Name == "" && e.Metadata.GenerateName == "" {
		r.fault(at, "metadata.name: it is required")
	}
}

var unknownField = regexp.MustCompile(`^unknown field "(.*)"$`)

// strict adds a warning of an API server as a fault. Unknown fields in status and metadata come from newer API servers.
func (r *reader) strict(at string, gvk schema.GroupVersionKind, fault error) {
	match := unknownField.FindStringSubmatch(fault.Error())
	if match == nil {
		r.fault(at, "%w", fault)
		return
	}
	path := match[1]
	if strings.HasPrefix(path, "status.") || strings.HasPrefix(path, "metadata.") {
		return
	}
	object, err := r.decoder.scheme.New(gvk)
	if err != nil {
		r.fault(at, "%w", fault)
		return
	}
	r.fault(at, "%w%s", fault, nearestField(object, path))
}

// inField returns a part of a sentence, or "" if the fault is not in a field.
func inField(err error) string {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field != "" {
		return ": " + typeFault(err)
	}
	return ""
}

// typeFault returns an error of the decoder without the parts that only a Go programmer understands.
func typeFault(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Sprintf("%s: it is a %s, and has to be a %s", wrong.Field, wrong.Value, typeName(wrong.Type))
	}
	return oneLine(err.Error())
}

func typeName(t reflect.Type) string {
	switch bare(t).Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "list"
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	default: // The remaining kinds are numbers.
		return "number"
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
