// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/cluster"
	"github.com/trainyard/trainyard/internal/spelling"
)

// explain adds to an error what was being done, and what the user can do. It returns nil for nil.
func (h *Hub) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	return h.Hint(fmt.Errorf("%s: %w", what, err))
}

// Hint adds to an error of the hub what the user can do, if that is known.
func (h *Hub) Hint(err error) error {
	var network *net.OpError
	switch {
	case cluster.IsKindMissing(err):
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
