// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
)

const (
	// indexOwner finds Workloads by the UID of their TrainJob, indexCheck by the names of their admission checks, and
	// indexFlavor by the names of their flavors.
	indexOwner, indexCheck, indexFlavor = "owner", "check", "flavor"
)

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// watchDefinition starts a watch of this one CustomResourceDefinition. Each event of it sends to poked.
func (w *Watch) watchDefinition(ctx context.Context, poked chan<- struct{}) (toolscache.SharedIndexInformer, error) {
	client, err := metadata.NewForConfigAndClient(w.Config, w.HTTPClient)
	if err != nil {
		return nil, fmt.Errorf("make client for metadata: %w", err)
	}
	one := func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, crdName).String()
	}
	informer := metadatainformer.NewFilteredMetadataInformer(
		client, definitions, metav1.NamespaceAll, 0, toolscache.Indexers{}, one).Informer()
	poke := func(any) {
		select {
		case poked <- struct{}{}:
		default: // An event is already waiting to be handled.
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: poke, UpdateFunc: func(_, after any) { poke(after) }, DeleteFunc: poke,
	})
	err = errors.Join(err, informer.SetWatchErrorHandlerWithContext(w.failsToRead("CustomResourceDefinition "+crdName)))
	if err != nil {
		return nil, fmt.Errorf("watch CustomResourceDefinition %q: %w", crdName, err)
	}
	go informer.RunWithContext(ctx)
	return informer, nil
}

// failsToRead is called when a list or a watch fails. The end of a watch is normal: the informer tries again by itself.
func (w *Watch) failsToRead(what string) toolscache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, _ *toolscache.Reflector, err error) {
		if ctx.Err() == nil {
			w.fail(fmt.Errorf("read %s: %w", what, err))
		}
	}
}

// follower has caches of the present version of Kueue's API.
type follower struct {
	watch *Watch
	// known: version is the version of the caches, empty for no caches.
	known   bool
	version string
	// end stops the caches. Nil: there are none.
	end func()
}

// stop stops the caches.
func (f *follower) stop() {
	if f.end != nil {
		f.end()
		f.end = nil
	}
}

// follow replaces the caches by caches of this version. Without a version it only stops them.
func (f *follower) follow(ctx context.Context, version string) error {
	if f.known && f.version == version {
		return nil
	}
	f.stop()
	f.known = false
	if version == "" {
		f.watch.enter(absent, nil)
	} else {
		f.watch.enter(reading, nil)
		stop, err := f.watch.read(ctx, version)
		if err != nil {
			return err
		}
		f.end = stop
	}
	f.known, f.version = true, version
	return nil
}

// read starts the caches of Kueue's objects. When they are complete, it enters the phase present.
func (w *Watch) read(ctx context.Context, version string) (stop func(), err error) {
	client, err := dynamic.NewForConfigAndClient(w.Config, w.HTTPClient)
	if err != nil {
		return nil, fmt.Errorf("make client for Kueue: %w", err)
	}
	c, err := w.newCaches(client, version)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var synced []toolscache.InformerSynced
	for _, informer := range c.all {
		running.Go(func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	running.Go(func() {
		if toolscache.WaitForCacheSync(ctx.Done(), synced...) {
			w.enter(present, c)
			c.tellAll(w.tellJob)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}, nil
}

// caches hold the Workloads and AdmissionChecks of the hub.
type caches struct {
	workloads, checks toolscache.SharedIndexInformer
	// flavors are the ResourceFlavors, nil if nothing is decided about jobs before Kueue has resumed them.
	flavors toolscache.SharedIndexInformer
	// all are all of these.
	all []toolscache.SharedIndexInformer
}

// cached is a kind that is cached.
type cached struct {
	kind     kueues.Kind
	strip    toolscache.TransformFunc
	indexers toolscache.Indexers
	handler  toolscache.ResourceEventHandler
}

func (w *Watch) newCaches(client dynamic.Interface, version string) (*caches, error) {
	c, errs := &caches{}, []error(nil)
	informer := func(of cached) toolscache.SharedIndexInformer {
		resource := schema.GroupVersionResource{Group: kueues.Group, Version: version, Resource: of.kind.Resource()}
		informer := dynamicinformer.NewFilteredDynamicInformer(client, resource, metav1.NamespaceAll, 0, of.indexers, nil).Informer()
		_, err := informer.AddEventHandler(of.handler)
		errs = append(errs, err, informer.SetTransform(of.strip),
			informer.SetWatchErrorHandlerWithContext(w.failsToRead(string(of.kind)+"s")))
		c.all = append(c.all, informer)
		return informer
	}
	c.workloads = informer(cached{
		kind:     kueues.KindWorkload,
		strip:    func(in any) (any, error) { return stripWorkload(in, w.Checks != "") },
		indexers: toolscache.Indexers{indexOwner: indexedBy(ownerOf), indexCheck: indexedBy(checksOf), indexFlavor: indexedBy(flavorsOf)},
		handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { tellWorkload(w.tellJob, object) },
			UpdateFunc: func(before, after any) { tellChange(w.tellJob, before, after) },
			DeleteFunc: func(object any) { tellWorkload(w.tellJob, object) },
		},
	})
	c.checks = informer(objects[kueues.AdmissionCheckSpec](kueues.KindAdmissionCheck, func(check any) {
		c.tellJobs(w.tellJob, indexCheck, check)
	}))
	if w.Checks != "" {
		c.flavors = informer(objects[kueues.ResourceFlavorSpec](kueues.KindResourceFlavor, func(flavor any) {
			c.tellJobs(w.tellJob, indexFlavor, flavor)
		}))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("watch Kueue: %w", err)
	}
	return c, nil
}

// objects is a kind with the spec S. changed is called with each object that has another spec than before.
func objects[S any](kind kueues.Kind, changed func(object any)) cached {
	return cached{
		kind: kind, indexers: toolscache.Indexers{},
		strip: func(in any) (any, error) {
			object, ok := in.(*unstructured.Unstructured)
			if !ok {
				return in, nil
			}
			trainjobs.StripMetadata(object)
			fields, err := kueues.Read[kueues.Object[S]](object)
			if err != nil {
				return nil, fmt.Errorf("read %s %q: %w", kind, object.GetName(), err)
			}
			return fields, nil
		},
		handler: toolscache.ResourceEventHandlerFuncs{
			AddFunc: changed,
			UpdateFunc: func(before, after any) {
				if !reflect.DeepEqual(before.(*kueues.Object[S]).Spec, after.(*kueues.Object[S]).Spec) {
					changed(after)
				}
			},
			DeleteFunc: changed,
		},
	}
}

// indexedBy indexes the Workloads of TrainJobs.
func indexedBy(values func(*workload) []string) toolscache.IndexFunc {
	return func(object any) ([]string, error) {
		if w, ok := object.(*workload); ok && w.owner != "" {
			return values(w), nil
		}
		return nil, nil
	}
}

func ownerOf(w *workload) []string { return []string{string(w.owner)} }

func checksOf(w *workload) (names []string) {
	for _, c := range w.checks {
		names = append(names, c.Name)
	}
	return names
}

func flavorsOf(w *workload) (names []string) {
	for _, a := range w.assigned {
		names = slices.AppendSeq(names, maps.Values(a.Flavors))
	}
	return names
}

// of returns the Workloads of a TrainJob. A Workload in another namespace is not the job's, whatever owner it names.
func (c *caches) of(job *unstructured.Unstructured) []*workload {
	return slices.DeleteFunc(c.indexed(indexOwner, string(job.GetUID())), func(w *workload) bool {
		return w.Namespace != job.GetNamespace()
	})
}

func (c *caches) indexed(index, value string) []*workload {
	objects, _ := c.workloads.GetIndexer().ByIndex(index, value) // It fails only if the index does not exist.
	var all []*workload
	for _, object := range objects {
		if w, ok := object.(*workload); ok {
			all = append(all, w)
		}
	}
	return all
}

// controllerOf returns the controller of an admission check, empty if the hub has no check of that name.
func (c *caches) controllerOf(check string) string {
	object, _, _ := c.checks.GetIndexer().GetByKey(check)
	if known, ok := object.(*kueues.AdmissionCheck); ok {
		return known.Spec.ControllerName
	}
	return ""
}

// flavor returns a ResourceFlavor, nil if the hub has none of that name.
func (c *caches) flavor(name string) *kueues.ResourceFlavor {
	if c.flavors == nil {
		return nil
	}
	object, _, _ := c.flavors.GetIndexer().GetByKey(name)
	found, _ := object.(*kueues.ResourceFlavor)
	return found
}

// tellAll calls tell for all TrainJobs that have a Workload.
func (c *caches) tellAll(tell func(types.NamespacedName)) {
	for _, object := range c.workloads.GetStore().List() {
		tellWorkload(tell, object)
	}
}

// tellJobs calls tell for the TrainJobs whose Workloads have this admission check or flavor.
func (c *caches) tellJobs(tell func(types.NamespacedName), index string, object any) {
	name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	for _, w := range c.indexed(index, name) {
		tell(w.job)
	}
}

// tellWorkload calls tell for the TrainJob of a Workload.
func tellWorkload(tell func(types.NamespacedName), object any) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if w, ok := object.(*workload); ok && w.job.Name != "" {
		tell(w.job)
	}
}

// tellChange calls tell for the TrainJob of a Workload that has changed.
func tellChange(tell func(types.NamespacedName), before, after any) {
	was, is := before.(*workload), after.(*workload)
	if was.equal(&is.observation) {
		return
	}
	tellWorkload(tell, is)
	if was.job != is.job {
		tellWorkload(tell, was)
	}
}
