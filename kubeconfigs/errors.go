// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

var (
	// ErrInsecure matches, with errors.Is, an error about a kubeconfig with something that is refused for security.
	ErrInsecure = errors.New("insecure kubeconfig")
	// ErrInvalid matches, with errors.Is, an error about a kubeconfig that cannot be used.
	ErrInvalid = errors.New("invalid kubeconfig")
	// ErrNotFound matches, with errors.Is, an error about a Secret or file that does not exist or has no kubeconfig.
	ErrNotFound = errors.New("credentials not found")
)

// Kind says why something is a fault.
type Kind int

const (
	// Invalid faults make a kubeconfig unusable.
	Invalid Kind = iota
	// Insecure faults are refused on purpose, although client-go would accept them.
	Insecure
)

// String returns the name of the kind.
func (k Kind) String() string {
	if k == Insecure {
		return "Insecure"
	}
	return "Invalid"
}

// Fault is one thing that is wrong with a kubeconfig. Its texts contain no secrets.
type Fault struct {
	Kind Kind
	// Path is the path of the field, such as users["admin"].user.exec.
	Path string
	// Problem says what is wrong.
	Problem string
	// Remedy says what would be right.
	Remedy string
}

// Error returns the fault in one line.
func (f Fault) Error() string {
	return fmt.Sprintf("%s: %s; %s", f.Path, f.Problem, f.Remedy)
}

// Error has all faults of a kubeconfig. It matches ErrInsecure and ErrInvalid if it has a fault of that kind.
type Error struct {
	faults []Fault
	joined *multierror.Error
}

// newError sorts the faults and drops repetitions. It returns nil if there are none.
func newError(faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	slices.SortFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Error(), b.Error()))
	})
	e := &Error{joined: &multierror.Error{ErrorFormat: lines}}
	for i, fault := range faults {
		if i > 0 && fault == faults[i-1] {
			continue
		}
		e.faults = append(e.faults, fault)
		e.joined = multierror.Append(e.joined, fault)
	}
	return e
}

func lines(errs []error) string {
	texts := make([]string, 0, len(errs))
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "\n")
}

// Error returns a line for each fault, sorted.
func (e *Error) Error() string { return e.joined.Error() }

// Unwrap returns the faults as a *multierror.Error.
func (e *Error) Unwrap() error { return e.joined }

// Is matches ErrInsecure and ErrInvalid.
func (e *Error) Is(target error) bool {
	for _, fault := range e.faults {
		if (target == ErrInsecure && fault.Kind == Insecure) || (target == ErrInvalid && fault.Kind == Invalid) {
			return true
		}
	}
	return false
}

// Faults returns the faults in the order of their lines.
func (e *Error) Faults() []Fault { return append([]Fault(nil), e.faults...) }

// ReasonOf returns the reason of a WorkerCluster's Ready condition for an error of this package. For a kubeconfig that
// is insecure and invalid it returns InsecureKubeconfig. It returns "" for nil, and for errors that are not about the
// credentials, such as an API server that does not answer.
func ReasonOf(err error) string {
	switch {
	case errors.Is(err, ErrNotFound):
		return v1alpha1.ReasonCredentialsNotFound
	case errors.Is(err, ErrInsecure):
		return v1alpha1.ReasonInsecureKubeconfig
	case errors.Is(err, ErrInvalid):
		return v1alpha1.ReasonInvalidKubeconfig
	}
	return ""
}
