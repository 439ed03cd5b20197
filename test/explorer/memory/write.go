// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// finalizers that the API server itself sets.
const foreground = metav1.FinalizerDeleteDependents

// defaultGrace is the default termination grace of pods.
const defaultGrace int64 = 30

func resource(kind Kind) schema.GroupResource { return schema.GroupResource{Resource: string(kind)} }

// NotFound returns the error about an object that does not exist.
func NotFound(kind Kind, name string) error { return apierrors.NewNotFound(resource(kind), name) }

// fields is an object as JSON would have it.
func fields(object client.Object) map[string]any {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return u.DeepCopy().Object
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(err) // All kinds are of generated types.
	}
	return m
}

// parse is the reverse of fields. Times lose what is less than a second, as they do in JSON.
func parse(kind Kind, m map[string]any) client.Object {
	object := newObject(kind)
	if u, ok := object.(*unstructured.Unstructured); ok {
		u.Object = m
		return u
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, object); err != nil {
		panic(err)
	}
	return object
}

// stamp gives a version its number.
func (s *Server) stamp(object client.Object) *Version {
	s.revision++
	object.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	return &Version{Object: object}
}

// Create creates an object.
func (s *Server) Create(object client.Object, actor string) (*Version, error) {
	kind, key := KindOf(object), client.ObjectKeyFromObject(object)
	if s.objects[kind][key] != nil {
		return nil, apierrors.NewAlreadyExists(resource(kind), key.Name)
	}
	m := fields(object)
	if kind != Pod && kind != WorkerCluster { // The user of this package makes these objects.
		delete(m, "status")
	}
	if kind == Dispatch {
		m["status"] = map[string]any{"phase": "Pending"} // The CRD's default.
	}
	created := parse(kind, m)
	s.uids++
	created.SetUID(types.UID(fmt.Sprintf("%s-%s-%d", s.Name, kind, s.uids)))
	created.SetGeneration(1)
	created.SetCreationTimestamp(s.time(0))
	version := s.stamp(created)
	s.commit(kind, key, version, actor)
	return version, nil
}

// Try is Create as a dry run.
func (s *Server) Try(object client.Object, _ string) (*Version, error) {
	kind, key := KindOf(object), client.ObjectKeyFromObject(object)
	if s.objects[kind][key] != nil {
		return nil, apierrors.NewAlreadyExists(resource(kind), key.Name)
	}
	if s.Tried != nil {
		s.Tried(object)
	}
	return &Version{Object: parse(kind, fields(object))}, nil
}

func (s *Server) time(after time.Duration) metav1.Time {
	return metav1.NewTime(s.Wall(s.Now() + after).Truncate(time.Second))
}

// Patch applies a JSON merge patch to an object: only to its status, or to everything else.
func (s *Server) Patch(kind Kind, key client.ObjectKey, data []byte, status bool, actor string) (*Version, error) {
	before := s.objects[kind][key]
	if before == nil {
		return nil, NotFound(kind, key.Name)
	}
	var patch map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	metadata, _ := patch["metadata"].(map[string]any)
	if version, locked := metadata["resourceVersion"]; locked && !s.Unlocked && version != before.Object.GetResourceVersion() {
		return nil, apierrors.NewConflict(resource(kind), key.Name, errors.New("the object has been modified"))
	}
	if uid, named := metadata["uid"]; named && uid != string(before.Object.GetUID()) {
		return nil, apierrors.NewConflict(resource(kind), key.Name, errors.New("the object is another one"))
	}
	if status {
		part := map[string]any{}
		if of, ok := patch["status"]; ok {
			part["status"] = of
		}
		patch = part
	} else {
		delete(patch, "status")
	}
	delete(metadata, "resourceVersion")
	after := fields(before.Object)
	merge(after, patch)
	return s.put(kind, key, before, parse(kind, after), actor, patch["spec"] != nil)
}

// Change changes an object like a user who has just read it.
func (s *Server) Change(kind Kind, key client.ObjectKey, actor string, change func(client.Object)) {
	before := s.objects[kind][key]
	if before == nil {
		return
	}
	after := before.Object.DeepCopyObject().(client.Object)
	change(after)
	_, _ = s.put(kind, key, before, after, actor, specChanged(before.Object, after)) // Nobody is faster.
}

// put makes an object the current version if it differs, with the next generation if the spec differs.
func (s *Server) put(kind Kind, key client.ObjectKey, before *Version, after client.Object, actor string, next bool) (*Version, error) {
	if equality.Semantic.DeepEqual(before.Object, after) {
		return before, nil
	}
	if after.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 && kind != Pod {
		s.commit(kind, key, nil, actor)
		return &Version{Object: after}, nil
	}
	if next {
		after.SetGeneration(before.Object.GetGeneration() + 1)
	}
	version := s.stamp(after)
	s.commit(kind, key, version, actor)
	return version, nil
}

// specChanged compares what is neither status nor metadata.
func specChanged(before, after client.Object) bool {
	a, b := fields(before), fields(after)
	return !equality.Semantic.DeepEqual(a["spec"], b["spec"])
}

// merge is RFC 7396.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(into, key)
		case map[string]any:
			child, ok := into[key].(map[string]any)
			if !ok {
				child = map[string]any{}
			}
			merge(child, value)
			into[key] = child
		default:
			into[key] = value
		}
	}
}

// Delete deletes an object.
func (s *Server) Delete(kind Kind, key client.ObjectKey, options *client.DeleteOptions, actor string) error {
	before := s.objects[kind][key]
	if before == nil {
		return NotFound(kind, key.Name)
	}
	if p := options.Preconditions; p != nil && !s.Unlocked {
		uid, version := before.Object.GetUID(), before.Object.GetResourceVersion()
		if p.UID != nil && *p.UID != uid || p.ResourceVersion != nil && *p.ResourceVersion != version {
			return apierrors.NewConflict(resource(kind), key.Name, errors.New("the precondition is not met"))
		}
	}
	after := before.Object.DeepCopyObject().(client.Object)
	if kind == Pod {
		return s.deletePod(key, before, after.(*corev1.Pod), options.GracePeriodSeconds, actor)
	}
	if policy := options.PropagationPolicy; policy != nil && *policy == metav1.DeletePropagationForeground &&
		!slices.Contains(after.GetFinalizers(), foreground) {
		after.SetFinalizers(append(after.GetFinalizers(), foreground))
	}
	if len(after.GetFinalizers()) == 0 {
		s.commit(kind, key, nil, actor)
		return nil
	}
	if after.GetDeletionTimestamp() == nil {
		after.SetDeletionTimestamp(ptr.To(s.time(0)))
		after.SetGeneration(after.GetGeneration() + 1)
	}
	_, err := s.put(kind, key, before, after, actor, false)
	return err
}

// deletePod gives a pod its time to end. The user of this package plays the kubelet and removes the pod.
func (s *Server) deletePod(key client.ObjectKey, before *Version, pod *corev1.Pod, seconds *int64, actor string) error {
	grace := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, defaultGrace)
	if seconds != nil {
		grace = *seconds
	}
	due := s.time(time.Duration(grace) * time.Second)
	if pod.DeletionTimestamp != nil && !due.Before(pod.DeletionTimestamp) {
		return nil
	}
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &due, &grace
	_, err := s.put(Pod, key, before, pod, actor, false)
	return err
}

// Remove removes an object, even if it has finalizers.
func (s *Server) Remove(kind Kind, key client.ObjectKey, actor string) {
	if s.objects[kind][key] != nil {
		s.commit(kind, key, nil, actor)
	}
}
