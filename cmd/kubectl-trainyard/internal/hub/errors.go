// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/internal/spelling"
)

// isMissing is true if an object does not exist on an API server that knows its kind.
func isMissing(err error) bool { return apierrors.IsNotFound(err) && !isKindMissing(err) }

// isKindMissing is true if the API server does not know the kind. It is false if only the object is missing.
func isKindMissing(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// explain adds to an error what was being done, and what the user can do.
func (h *Hub) explain(what string, err error) error { return h.Hint(fmt.Errorf("%s: %w", what, err)) }

// Hint adds to an error of the hub what the user can do, if that is known.
func (h *Hub) Hint(err error) error {
	var network *net.OpError
	switch {
	case isKindMissing(err):
		return fmt.Errorf("%w: Trainyard is not installed on this cluster%s, or it is a worker; name the hub with --context", err, h.of(" (context %q)"))
	case errors.As(err, &network):
		return fmt.Errorf("unable to connect to the hub%s: %w", h.of(" (context %q)"), err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: you must be logged in to the hub%s", err, h.of(" (context %q)"))
	}
	return err
}

func (h *Hub) noJob(ctx context.Context, key types.NamespacedName) error {
	var near string
	if names, err := h.Names(ctx, key.Namespace); err == nil {
		near = DidYouMean(key.Name, names)
	}
	return fmt.Errorf("there is no TrainJob %q in namespace %q%s%s", key.Name, key.Namespace, h.of(" of context %q"), near)
}

// of returns a part of a sentence, or "" without a context.
func (h *Hub) of(format string) string {
	if h.context == "" {
		return ""
	}
	return fmt.Sprintf(format, h.context)
}

// DidYouMean returns a part of a sentence with the most similar name, or "" if no name is similar.
func DidYouMean(wrong string, names []string) string {
	if best := spelling.Nearest(wrong, names); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ""
}
