// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// New returns a client. It sends no request.
func New(config *rest.Config) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{Scheme: Scheme(), Mapper: mapper{}})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// Each reads a list in pages, and passes its objects to do. The list says of which kind it is, and stays empty.
func Each[T runtime.Object](
	ctx context.Context, c client.Reader, list client.ObjectList, do func(T), options ...client.ListOption,
) error {
	pages := pager.New(func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
		page := list.DeepCopyObject().(client.ObjectList)
		of := []client.ListOption{client.Limit(raw.Limit), client.Continue(raw.Continue)}
		return page, c.List(ctx, page, append(of, options...)...)
	})
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		do(object.(T))
		return nil
	})
}

// IsMissing is true if an object does not exist on an API server that knows its kind.
func IsMissing(err error) bool { return apierrors.IsNotFound(err) && !IsKindMissing(err) }

// IsKindMissing is true if the API server does not know the kind. It is false if only the object is missing.
func IsKindMissing(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
