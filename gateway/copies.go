// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

const (
	// foreignFor is how long a JobSet counts as foreign. It never becomes a copy's, but its copy can be younger than the
	// hub's cache.
	foreignFor = 2 * time.Second
	// ownedFor is how long the copy of a JobSet is remembered. It never changes.
	ownedFor = time.Hour
	// maxOwned bounds how many JobSets are remembered.
	maxOwned = 50_000
	// manyUnknown is from how many unknown JobSets of a namespace on all are listed instead of read one by one.
	manyUnknown = 4
)

var (
	jobSets   = jobsetv1alpha2.SchemeGroupVersion.WithResource("jobsets")
	trainJobs = schema.GroupVersionResource{
		Group: trainjobs.GroupVersionKind.Group, Version: trainjobs.GroupVersionKind.Version, Resource: "trainjobs",
	}
)

// jobSet names a JobSet of a worker, as its pods and Jobs do in their labels.
type jobSet struct {
	namespace, name string
	uid             types.UID
}

// jobSetOf returns the JobSet that labels name, and whether they name one.
func jobSetOf(namespace string, labels map[string]string) (jobSet, bool) {
	set := jobSet{namespace: namespace, name: labels[jobsetv1alpha2.JobSetNameKey], uid: types.UID(labels[jobsetv1alpha2.JobSetUIDKey])}
	return set, set.name != "" && set.uid != ""
}

// owner is whose copy a JobSet belongs to. The zero value belongs to none of this hub's.
type owner struct {
	copyUID types.UID
	origin  types.UID
	attempt int32
}

// isOf says whether the copy is that of the present attempt of a Dispatch.
func (o owner) isOf(d *v1alpha1.Dispatch) bool {
	return o.copyUID != "" && o.origin == d.Spec.TrainJob.UID && o.attempt == d.Spec.Attempt
}

type ownerKey struct {
	clusterID, jobSet types.UID
}

// copies knows which objects of workers belong to copies of this hub's jobs.
type copies struct {
	hub   client.Reader
	hubID string
	// owners has the owner of each JobSet, and parts the JobSet of each object that Events are about.
	owners, parts *cache.LRUExpireCache
}

func newCopies(hub client.Reader, hubID string, clock clock.Clock) *copies {
	return &copies{
		hub: hub, hubID: hubID,
		owners: cache.NewLRUExpireCacheWithClock(maxOwned, clock), parts: cache.NewLRUExpireCacheWithClock(maxOwned, clock),
	}
}

// jobsOf returns the names of jobs whose pod can have this name, the longest first: the names of a job's pods begin with
// the job's name. "kubectl logs JOB" asks for the name itself.
func jobsOf(pod string) (names []string) {
	for at := len(pod); at > 0; at = strings.LastIndexByte(pod[:at], '-') {
		names = append(names, pod[:at])
	}
	return names
}

// byPod returns the Dispatches whose pods may have this name.
func (c *copies) byPod(ctx context.Context, namespace, pod string) (found []*v1alpha1.Dispatch) {
	for _, job := range jobsOf(pod) {
		if d := dispatchIn(ctx, c.hub, types.NamespacedName{Namespace: namespace, Name: job}); d != nil {
			found = append(found, d)
		}
	}
	return found
}

// belonging says to which JobSet, and so to which copy, an object of a worker belongs.
type belonging struct {
	set   jobSet
	owner owner
}

// mayShow says whether the hub has placed a job with the name of a JobSet on the worker.
func (c *copies) mayShow(ctx context.Context, name v1alpha1.ClusterName, set jobSet) bool {
	d := dispatchIn(ctx, c.hub, set.key())
	return d != nil && d.Spec.Cluster == name
}

// shows returns the Dispatch of the job to which something on a worker belongs, nil if it is not of the present attempt of
// a job there. It reads only the hub's cache.
func (c *copies) shows(ctx context.Context, name v1alpha1.ClusterName, b belonging) *v1alpha1.Dispatch {
	d := dispatchIn(ctx, c.hub, b.set.key())
	if d == nil || d.Spec.Cluster != name || !b.owner.isOf(d) {
		return nil
	}
	return d
}

// belongs returns to which copy a JobSet belongs. ok is false if that is not known, or if it belongs to none.
func (c *copies) belongs(w *worker, set jobSet) (b belonging, ok bool) {
	of, _ := c.ownerOf(w, set)
	return belonging{set: set, owner: of}, of.copyUID != ""
}

func (c *copies) ownerOf(w *worker, set jobSet) (owner, bool) {
	known, ok := c.owners.Get(ownerKey{clusterID: w.clusterID, jobSet: set.uid})
	if !ok {
		return owner{}, false
	}
	return known.(owner), true
}

func (c *copies) remember(w *worker, uid types.UID, of owner) {
	ttl := ownedFor
	if of.copyUID == "" {
		ttl = foreignFor
	}
	c.owners.Add(ownerKey{clusterID: w.clusterID, jobSet: uid}, of, ttl)
}

// key is the key of the job of a JobSet: it has the same name.
func (s jobSet) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: s.name}
}

// learn reads from the worker whose copies JobSets of one namespace belong to, as far as that is not known.
func (c *copies) learn(ctx context.Context, w *worker, namespace string, sets map[jobSet]bool) error {
	var unknown []jobSet
	for set := range sets {
		if _, known := c.ownerOf(w, set); !known {
			unknown = append(unknown, set)
		}
	}
	if len(unknown) >= manyUnknown {
		return c.learnAll(ctx, w, namespace, unknown)
	}
	for _, set := range unknown {
		if err := c.learnOne(ctx, w, set); err != nil {
			return err
		}
	}
	return nil
}

func (c *copies) learnOne(ctx context.Context, w *worker, set jobSet) error {
	found, err := w.metadata.Resource(jobSets).Namespace(set.namespace).Get(ctx, set.name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("worker %q does not show JobSet %s/%s: %w", w.name, set.namespace, set.name, err)
	}
	var controller *metav1.OwnerReference
	if err == nil && found.UID == set.uid {
		controller = trainJobOf(found)
	}
	if controller == nil {
		c.remember(w, set.uid, owner{})
		return nil
	}
	copy, err := w.metadata.Resource(trainJobs).Namespace(set.namespace).Get(ctx, controller.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("worker %q does not show TrainJob %s/%s: %w", w.name, set.namespace, controller.Name, err)
	}
	of := owner{}
	if err == nil && copy.UID == controller.UID {
		of = c.marksOf(copy)
	}
	c.remember(w, set.uid, of)
	return nil
}

// learnAll lists JobSets and copies. An empty namespace means all.
func (c *copies) learnAll(ctx context.Context, w *worker, namespace string, unknown []jobSet) error {
	byUID := map[types.UID]owner{}
	options := metav1.ListOptions{LabelSelector: v1alpha1.LabelHub + "=" + c.hubID}
	err := eachPage(ctx, w, trainJobs, namespace, options, func(copy *metav1.PartialObjectMetadata) { byUID[copy.UID] = c.marksOf(copy) })
	if err != nil {
		return err
	}
	found := map[types.UID]owner{}
	err = eachPage(ctx, w, jobSets, namespace, metav1.ListOptions{}, func(set *metav1.PartialObjectMetadata) {
		if controller := trainJobOf(set); controller != nil {
			found[set.UID] = byUID[controller.UID]
		}
	})
	if err != nil {
		return err
	}
	for _, set := range unknown {
		c.remember(w, set.uid, found[set.uid])
	}
	return nil
}

func eachPage(
	ctx context.Context, w *worker, kind schema.GroupVersionResource, namespace string, options metav1.ListOptions,
	each func(*metav1.PartialObjectMetadata),
) error {
	options.Limit = pageSize
	for {
		page, err := w.metadata.Resource(kind).Namespace(namespace).List(ctx, options)
		if err != nil {
			return fmt.Errorf("worker %q does not list %s: %w", w.name, kind.Resource, err)
		}
		for i := range page.Items {
			each(&page.Items[i])
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// trainJobOf returns the TrainJob that controls a JobSet, nil if none does.
func trainJobOf(set *metav1.PartialObjectMetadata) *metav1.OwnerReference {
	controller := metav1.GetControllerOf(set)
	if controller == nil || controller.Kind != trainer.TrainJobKind {
		return nil
	}
	if group, err := schema.ParseGroupVersion(controller.APIVersion); err != nil || group.Group != trainJobs.Group {
		return nil
	}
	return controller
}

// marksOf reads the marks of a copy. The zero value says that it is none of this hub's.
func (c *copies) marksOf(copy *metav1.PartialObjectMetadata) owner {
	if copy.Labels[v1alpha1.LabelHub] != c.hubID {
		return owner{}
	}
	return owner{copyUID: copy.UID, origin: record.OriginOn(copy), attempt: record.AttemptOn(copy)}
}
