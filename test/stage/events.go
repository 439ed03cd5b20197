// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Events is an EventRecorder that keeps Events as "type reason note". It is safe for concurrent use.
type Events struct {
	mu    sync.Mutex
	told  []event // under mu
	taken int     // under mu
}

type event struct{ about, text string }

// Eventf implements events.EventRecorder.
func (e *Events) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := fmt.Sprintf("%s %s %s", kind, reason, fmt.Sprintf(note, args...))
	e.told = append(e.told, event{about: regarding.(client.Object).GetName(), text: text})
}

// About returns all Events about the objects of a name.
func (e *Events) About(name string) (texts []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.told {
		if event.about == name {
			texts = append(texts, event.text)
		}
	}
	return texts
}

// Take returns the Events since the last Take.
func (e *Events) Take() (texts []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.told[e.taken:] {
		texts = append(texts, event.text)
	}
	e.taken = len(e.told)
	return texts
}

// Warnings collects the warnings that a client gets from an API server: it is a rest.WarningHandler.
type Warnings struct {
	mu    sync.Mutex
	texts []string // under mu
	taken int      // under mu
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *Warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// All returns all warnings.
func (w *Warnings) All() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.texts)
}

// Take returns the warnings since the last Take, one a line.
func (w *Warnings) Take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := strings.Join(w.texts[w.taken:], "\n")
	w.taken = len(w.texts)
	return texts
}
