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

// IsMissing is true if an object is not there, on an API server that knows its kind.
func IsMissing(err error) bool { return apierrors.IsNotFound(err) && !isKindMissing(err) }

// isKindMissing tells a kind that the API server does not know from an object that is not there.
func isKindMissing(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// explain says what was being done, and what to do about the error.
func (h *Hub) explain(what string, err error) error { return h.Hint(fmt.Errorf("%s: %w", what, err)) }

// Hint adds to an error of the hub what the user can do about it, where that can be known.
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

// of is a part of a sentence, empty where there is no context.
func (h *Hub) of(format string) string {
	if h.context == "" {
		return ""
	}
	return fmt.Sprintf(format, h.context)
}

// DidYouMean is a part of a sentence that names the nearest of the names, or empty if none is near.
func DidYouMean(wrong string, names []string) string {
	if best := spelling.Nearest(wrong, names); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ""
}
