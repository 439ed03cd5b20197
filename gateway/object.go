// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// fields are a JSON object of which only some fields are looked at. The others stay as they came: a worker can be newer
// than this gateway.
type fields map[string]json.RawMessage

// set sets a field.
func (f fields) set(name string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	f[name] = raw
	return nil
}

// edit changes the object in a field.
func (f fields) edit(name string, change func(fields) error) error {
	var inner fields
	if raw := f[name]; raw != nil {
		if err := json.Unmarshal(raw, &inner); err != nil {
			return fmt.Errorf("decode %s: %w", name, err)
		}
	}
	if inner == nil { // The field is not there, or null.
		inner = fields{}
	}
	if err := change(inner); err != nil {
		return err
	}
	f[name] = inner.raw()
	return nil
}

// raw writes the object. Its fields are valid already: json.Marshal would look at each of their bytes again, and a page has
// millions.
func (f fields) raw() json.RawMessage {
	size := 2
	for name, value := range f {
		size += len(name) + len(value) + 4
	}
	text := append(make([]byte, 0, size), '{')
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(append(text, quoted(name)...), ':')
		if value := f[name]; len(value) > 0 {
			text = append(text, value...)
		} else {
			text = append(text, "null"...)
		}
	}
	return append(text, '}')
}

// quoted is a text in JSON.
func quoted(text string) json.RawMessage {
	raw, _ := json.Marshal(text) // A string has no error.
	return raw
}

// setVersion gives an object or a list another resource version.
func (f fields) setVersion(version string) error {
	return f.edit("metadata", func(metadata fields) error { return metadata.set("resourceVersion", version) })
}

// object is a Kubernetes object as JSON.
type object struct {
	fields fields
	meta   objectMeta
}

// objectMeta is what is looked at in the metadata of an object.
type objectMeta struct {
	Namespace       string            `json:"namespace,omitempty"`
	Name            string            `json:"name"`
	UID             types.UID         `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// UnmarshalJSON reads an object.
func (o *object) UnmarshalJSON(raw []byte) error {
	if err := json.Unmarshal(raw, &o.fields); err != nil {
		return err
	}
	if metadata := o.fields["metadata"]; metadata != nil {
		return json.Unmarshal(metadata, &o.meta)
	}
	return nil
}

// mark says of an object of a worker from where it comes, and gives it the resource version of a gateway.
func (o *object) mark(name v1alpha1.ClusterName, version string) error {
	return o.fields.edit("metadata", func(metadata fields) error {
		if err := metadata.set("resourceVersion", version); err != nil {
			return err
		}
		return metadata.edit("labels", func(labels fields) error { return labels.set(v1alpha1.LabelCluster, string(name)) })
	})
}

// row is one row of a table.
type row struct {
	fields fields
	// of is what the row shows, as whole as it was asked for.
	of *object
}

// UnmarshalJSON reads a row.
func (r *row) UnmarshalJSON(raw []byte) error {
	if err := json.Unmarshal(raw, &r.fields); err != nil {
		return err
	}
	r.of = &object{}
	if shown := r.fields["object"]; shown != nil {
		return json.Unmarshal(shown, r.of)
	}
	return nil
}

// put writes the object of the row as the client has asked for it.
func (r *row) put(include metav1.IncludeObjectPolicy) {
	switch include {
	case metav1.IncludeNone:
		r.fields["object"] = json.RawMessage("null")
		return
	case metav1.IncludeObject:
	default:
		r.of.fields = fields{
			"kind": json.RawMessage(`"PartialObjectMetadata"`), "apiVersion": json.RawMessage(`"meta.k8s.io/v1"`),
			"metadata": r.of.fields["metadata"],
		}
	}
	r.fields["object"] = r.of.fields.raw()
}

// shown returns the object or the row for a list or a table.
type shown struct {
	*object
	// row and head are nil outside of tables. head is the table of the row, in a watch.
	row  *row
	head fields
}

// encode writes what the client gets.
func (s shown) encode(include metav1.IncludeObjectPolicy) json.RawMessage {
	if s.row == nil {
		return s.fields.raw()
	}
	s.row.put(include)
	return s.row.fields.raw()
}
