// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"reflect"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Of returns the objects of one type with their positions, in the order of the files.
func Of[T client.Object](f *Files) (found []T, at []string) {
	for _, item := range f.items {
		if object, ok := item.Object.(T); ok {
			found, at = append(found, object), append(at, item.at)
		}
	}
	return found, at
}

// Len is the number of objects.
func (f *Files) Len() int { return len(f.items) }

// Add appends the objects of others.
func (f *Files) Add(others *Files) {
	f.items = append(f.items, others.items...)
	f.Ignored = append(f.Ignored, others.Ignored...)
}

// SetNamespace sets the namespace of objects that need one and have none. If required, others must have it.
func (f *Files) SetNamespace(namespace string, required bool) error {
	for _, item := range f.items {
		switch item.Object.(type) {
		case *trainer.TrainJob, *trainer.TrainingRuntime, *v1alpha1.Dispatch:
		default:
			continue
		}
		if item.GetNamespace() == "" {
			item.SetNamespace(namespace)
		}
		if required && item.GetNamespace() != namespace {
			return fmt.Errorf("%s: the namespace from the provided object %q does not match the namespace %q. You must pass "+
				"'--namespace=%s' to perform this operation", item.at, item.GetNamespace(), namespace, item.GetNamespace())
		}
	}
	return nil
}

// duplicates returns an error if two objects have the same kind and name.
func (f *Files) duplicates() error {
	type key struct {
		kind reflect.Type
		name types.NamespacedName
	}
	known := map[key]string{}
	for _, item := range f.items {
		if item.GetName() == "" {
			continue
		}
		k := key{reflect.TypeOf(item.Object), client.ObjectKeyFromObject(item.Object)}
		if at, twice := known[k]; twice {
			return fmt.Errorf("%s: it is in %s already", item.at, at)
		}
		known[k] = item.at
	}
	return nil
}

// over returns a client that reads the objects of the files, and the objects of the cluster behind that they do not
// hide. If behind is nil, it reads only the files. It reads typed objects, not unstructured ones, and writes nothing.
func (f *Files) over(behind client.Client) client.Client {
	return &layered{Client: behind, files: f, alone: behind == nil}
}

// layered has the methods that a demand needs. Calls of other methods panic.
type layered struct {
	client.Client
	files *Files
	alone bool
}

// Get implements client.Reader.
func (l *layered) Get(ctx context.Context, key types.NamespacedName, into client.Object, options ...client.GetOption) error {
	for _, item := range l.files.items {
		if reflect.TypeOf(item.Object) == reflect.TypeOf(into) && client.ObjectKeyFromObject(item.Object) == key {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(item.Object.DeepCopyObject()).Elem())
			return nil
		}
	}
	if !l.alone {
		return l.Client.Get(ctx, key, into, options...)
	}
	gvk, err := apiutil.GVKForObject(into, scheme)
	if err != nil {
		return err
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
}

// List implements client.Reader. Options apply to the cluster behind.
func (l *layered) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	var behind []runtime.Object
	if !l.alone {
		if err := l.Client.List(ctx, into, options...); err != nil {
			return err
		}
		var err error
		if behind, err = meta.ExtractList(into); err != nil {
			return err
		}
	}
	items, err := l.mine(into)
	if err != nil {
		return err
	}
	hidden := map[types.NamespacedName]bool{}
	for _, item := range items {
		hidden[client.ObjectKeyFromObject(item.(client.Object))] = true
	}
	for _, object := range behind {
		if !hidden[client.ObjectKeyFromObject(object.(client.Object))] {
			items = append(items, object)
		}
	}
	return meta.SetList(into, items)
}

func (l *layered) mine(list client.ObjectList) ([]runtime.Object, error) {
	of, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, fmt.Errorf("list of %T: %w", list, err)
	}
	kind := reflect.TypeOf(of).Elem().Elem()
	var items []runtime.Object
	for _, item := range l.files.items {
		if reflect.TypeOf(item.Object).Elem() == kind {
			items = append(items, item.Object.DeepCopyObject())
		}
	}
	return items, nil
}

// Scheme implements client.Client.
func (l *layered) Scheme() *runtime.Scheme { return scheme }

// RESTMapper implements client.Client.
func (l *layered) RESTMapper() meta.RESTMapper {
	if l.alone {
		return meta.NewDefaultRESTMapper(nil)
	}
	return l.Client.RESTMapper()
}
