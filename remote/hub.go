// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apifields "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/remote/bounded"
)

const (
	// hubReadTimeout bounds a read of the hub's OpenAPI document.
	hubReadTimeout = 10 * time.Second
	// An API server publishes the schema of a changed CRD a little later, and whoever upgrades changes several CRDs. So the
	// document is read hubReads times, first at once and then after hubReadPause, which is doubled each time.
	hubReadPause = time.Second
	hubReads     = 5
)

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// HubAPI is what the hub's API server knows of TrainJobs and runtimes. It is read once, and again when one of their CRDs
// changes. A nil HubAPI knows nothing.
type HubAPI struct {
	document *document
	metadata metadata.Interface
	log      logr.Logger

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		schemas *schemas
		changed func()
	}
}

// NewHubAPI returns the API of the hub that a config leads to. It makes no request.
func NewHubAPI(config *rest.Config, client *http.Client, log logr.Logger) (*HubAPI, error) {
	meta, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), client)
	if err != nil {
		return nil, fmt.Errorf("make client for metadata: %w", err)
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the address of the hub: %w", err)
	}
	h := &HubAPI{metadata: meta, log: log}
	h.document = newDocument(host.String(), &http.Client{Transport: limited{client.Transport}, CheckRedirect: client.CheckRedirect})
	return h, nil
}

// limited bounds answers.
type limited struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := l.RoundTripper.RoundTrip(req)
	if err == nil {
		bounded.Answer(res, bounded.MaxDocument, false)
	}
	return res, err
}

// Release returns the release of the Kubeflow Trainer whose TrainJobs the hub has, as fields.Release.
func (h *HubAPI) Release() string {
	if now := h.current(); now != nil {
		return fields.Release(now.trainJob)
	}
	return ""
}

// current returns what the hub knows, nil if it has not been read.
func (h *HubAPI) current() *schemas {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.locked.schemas
}

// Read reads what the hub knows. It returns true if there is something new, and logs why it cannot read.
func (h *HubAPI) Read(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, hubReadTimeout)
	defer cancel()
	found, how, err := h.document.read(ctx)
	if err != nil {
		h.log.Error(err, "Cannot read which fields the hub's TrainJobs have")
	}
	if how != fresh {
		return false
	}
	h.mu.Lock()
	h.locked.schemas = found
	changed := h.locked.changed
	h.mu.Unlock()
	if changed != nil {
		changed()
	}
	return true
}

// Run follows the CRDs of TrainJobs and TrainingRuntimes until the context ends. It needs the rights to list and watch
// these two definitions.
func (h *HubAPI) Run(ctx context.Context) error {
	changes := make(chan struct{}, 1)
	for _, name := range []string{"trainjobs.trainer.kubeflow.org", "trainingruntimes.trainer.kubeflow.org"} {
		if err := h.watch(ctx, name, changes); err != nil {
			return fmt.Errorf("watch CustomResourceDefinition %q: %w", name, err)
		}
	}
	h.Read(ctx) // They may have changed between the first read and the watch.
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
			h.readChange(ctx)
		}
	}
}

// watch watches one definition. It sends to changes when its spec changes, and when it is created later.
func (h *HubAPI) watch(ctx context.Context, name string, changes chan<- struct{}) error {
	one := func(options *metav1.ListOptions) {
		options.FieldSelector = apifields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	informer := metadatainformer.NewFilteredMetadataInformer(
		h.metadata, definitions, metav1.NamespaceAll, 0, toolscache.Indexers{}, one).Informer()
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if !initial {
				poke(changes)
			}
		},
		UpdateFunc: func(before, after any) {
			if before.(metav1.Object).GetGeneration() != after.(metav1.Object).GetGeneration() {
				poke(changes)
			}
		},
	})
	go informer.RunWithContext(ctx)
	return err
}

// readChange reads what the hub knows after a change of its CRDs.
func (h *HubAPI) readChange(ctx context.Context) {
	pause := hubReadPause
	for range hubReads {
		h.Read(ctx)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause *= 2
	}
}

// subscribe has changed called after each change. It replaces an earlier function.
func (h *HubAPI) subscribe(changed func()) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.locked.changed = changed
}
