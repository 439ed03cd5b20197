// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// mostWords is how many things Words names.
	mostWords = 8
	// maxName is how much of a name Words repeats, in bytes: no object and no key has a longer name.
	maxName = 253
)

// State is what a cluster has of an object.
type State struct {
	// Absent is true if the object is not there.
	Absent bool
	// Deleting is true if the object is being deleted. Pods do not get a claim that is.
	Deleting bool
	// Keys are the keys of a Secret or ConfigMap, of which TextKeys are those of a ConfigMap's data. Nil: they are not
	// known, and all keys count as there.
	Keys, TextKeys sets.Set[string]
}

// Missing returns the references with the given need that a cluster cannot fulfil, each thing that is missing once, by
// the first reference to it. An object that is not among the states counts as there.
func Missing(references []Reference, need Need, states map[Object]State) (missing []Lack) {
	type thing struct {
		Object
		key string
	}
	seen := sets.Set[thing]{}
	for _, reference := range references {
		state, known := states[reference.Object]
		if !known || reference.Need != need {
			continue
		}
		lack, is := lackOf(reference, state)
		if at := (thing{reference.Object, lack.key}); is && !seen.Has(at) {
			seen.Insert(at)
			missing = append(missing, lack)
		}
	}
	return missing
}

// Lack is something that a cluster lacks.
type Lack struct {
	reference Reference
	// key that the object lacks. Empty: the object itself is missing, or is being deleted.
	key      string
	deleting bool
}

func lackOf(reference Reference, state State) (lack Lack, is bool) {
	switch {
	case state.Absent:
		return Lack{reference: reference}, true
	case state.Deleting && (reference.Kind == PersistentVolumeClaim || reference.Kind == ResourceClaim):
		return Lack{reference: reference, deleting: true}, true
	case reference.Key == "" || state.Keys == nil:
		return Lack{}, false
	}
	keys := state.Keys
	if reference.Text && reference.Kind == ConfigMap {
		keys = state.TextKeys
	}
	return Lack{reference: reference, key: reference.Key}, !keys.Has(reference.Key)
}

// Words say in one sentence what is missing in a namespace, and what names it. They have names only, and are at most a
// few thousand bytes long. Nothing missing has no words.
func Words(missing []Lack, namespace string) string {
	var texts []string
	for _, lack := range missing[:min(mostWords, len(missing))] {
		texts = append(texts, lack.words(namespace))
	}
	if more := len(missing) - mostWords; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

func (l Lack) words(namespace string) string {
	by := fmt.Sprintf("%s of step %s", cut(l.reference.Field), l.reference.Step)
	object := fmt.Sprintf("%s %q", l.reference.Kind, cut(l.reference.Name))
	switch {
	case l.key != "":
		return fmt.Sprintf("%s has no key %q, which %s needs", object, cut(l.key), by)
	case l.deleting:
		return fmt.Sprintf("%s is being deleted from namespace %q, and %s needs it", object, namespace, by)
	case l.reference.Kind.OfCluster():
		return fmt.Sprintf("%s is not there, and %s needs it", object, by)
	}
	return fmt.Sprintf("%s is not in namespace %q, and %s needs it", object, namespace, by)
}

func cut(text string) string {
	if len(text) <= maxName {
		return text
	}
	return strings.ToValidUTF8(text[:maxName], "") + "…"
}
