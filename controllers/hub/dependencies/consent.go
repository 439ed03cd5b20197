// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// NewConsented makes the cache of the metadata of all objects of the hub that may be brought to workers. It is a cache of
// its own: of other objects the manager must see nothing, and tokens of ServiceAccounts are never brought. changed is
// called for each object that is there at first, comes or changes. It must not block.
func NewConsented(
	ctx context.Context, config *rest.Config, http *http.Client, changed func(namespace string, object v1alpha1.Dependency),
) (cache.Cache, error) {
	all, err := cache.New(config, cache.Options{
		HTTPClient: http, Scheme: scheme.Scheme, Mapper: mapper(), ReaderFailOnMissingInformer: true, DefaultTransform: stripped,
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelPropagate: v1alpha1.PropagateYes}),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Field: fields.OneTermNotEqualSelector("type", string(corev1.SecretTypeServiceAccountToken))},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of dependencies: %w", err)
	}
	for kind := range maps.Keys(contents) {
		informer, err := all.GetInformer(ctx, metadataOf(kind), cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %ss: %w", kind, err)
		}
		tell := func(object any) {
			if onHub, ok := object.(client.Object); ok {
				changed(onHub.GetNamespace(), v1alpha1.Dependency{Kind: kind, Name: onHub.GetName()})
			}
		}
		// Of an object that is gone nothing is written.
		handler := toolscache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watch %ss: %w", kind, err)
		}
	}
	return all, nil
}

// mapper knows the kinds without a request to the API server.
func mapper() meta.RESTMapper {
	known := meta.NewDefaultRESTMapper(nil)
	for kind := range contents {
		known.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	return known
}

// stripped keeps of an object what says whether it has changed.
func stripped(in any) (any, error) {
	if object, ok := in.(client.Object); ok {
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
	}
	return in, nil
}
