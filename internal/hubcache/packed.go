// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// packed is a finished object in an informer's store. The store asks for its name and its version.
type packed interface {
	metav1.ObjectMetaAccessor
	// unpack returns a new object, which shares values with others.
	unpack() client.Object
}

// packing is the transform of informers that packs what the transform before it has left, nil for none.
func packing(before toolscache.TransformFunc) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if _, done := object.(packed); done {
			return object, nil // Lists call a transform twice.
		}
		if before != nil {
			var err error
			if object, err = before(object); err != nil {
				return nil, err
			}
		}
		return pack(object), nil
	}
}

// pack packs a finished object, and returns any other as it is.
func pack(object any) any {
	switch o := object.(type) {
	case *v1alpha1.Dispatch:
		if p := packDispatch(o); p != nil {
			return p
		}
	case *unstructured.Unstructured:
		if p := packTrainJob(o); p != nil {
			return p
		}
	}
	return object
}

// unpack undoes pack.
func unpack(object any) any {
	switch o := object.(type) {
	case packed:
		return o.unpack()
	case toolscache.DeletedFinalStateUnknown:
		o.Obj = unpack(o.Obj)
		return o
	}
	return object
}

// unpackAll unpacks a list in place. The list is the caller's.
func unpackAll(objects []any) []any {
	for i := range objects {
		objects[i] = unpack(objects[i])
	}
	return objects
}

// identity is what tells one packed object from the others. A namespace is in the shape: most jobs share one.
type identity struct {
	name    string
	uid     uid
	version uint64
	// created is metadata.creationTimestamp in seconds since 1970.
	created int64
}

// identityOf returns the identity of an object. It fails if it cannot be packed without a loss.
func identityOf(object metav1.Object) (identity, bool) {
	id, ok := parseUID(object.GetUID())
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if !ok || err != nil || strconv.FormatUint(version, 10) != object.GetResourceVersion() {
		return identity{}, false
	}
	return identity{name: strings.Clone(object.GetName()), uid: id, version: version, created: object.GetCreationTimestamp().Unix()}, true
}

// meta is what an informer's store asks for.
func (i *identity) meta(namespace string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Namespace: namespace, Name: i.name, UID: i.uid.of(), ResourceVersion: i.resourceVersion()}
}

func (i *identity) resourceVersion() string { return strconv.FormatUint(i.version, 10) }

func timeOf(seconds int64) metav1.Time {
	if at := time.Unix(seconds, 0); !at.IsZero() {
		return metav1.Time{Time: at}
	}
	return metav1.Time{}
}

// uid is a UID in the form of API servers, which takes a third of its text. Zero is no UID.
type uid uuid.UUID

// parseUID fails for a text in another form.
func parseUID(text types.UID) (id uid, ok bool) {
	if text == "" {
		return uid{}, true
	}
	parsed, err := uuid.Parse(string(text))
	id = uid(parsed)
	return id, err == nil && id.of() == text
}

// of returns the text.
func (u uid) of() types.UID {
	if u == (uid{}) {
		return ""
	}
	return types.UID(uuid.UUID(u).String())
}
