// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
)

// settleTime is how long after the last event all directories are watched again. If a directory is removed and made
// again at once, late events of the old directory can make fsnotify silently drop the watch of the new one.
const settleTime = time.Second

// FileWatcher reports files whose content has changed, appeared or vanished. It watches every directory that decides
// which file a path means: the directories of the file and of each symlink on the way, and their parents. So it sees
// the ..data symlink of a mounted Secret change every time, and directories that are made again. An event only starts a
// check: only the content counts. It is a manager.Runnable.
type FileWatcher struct {
	log      logr.Logger
	onChange func(path string)
	// poke wakes the loop after Add and Remove.
	poke chan struct{}

	mu sync.Mutex
	// locked is guarded by mu.
	locked struct {
		// contents has a hash of the last content of each watched path.
		contents map[string]content
	}
}

// content is a hash of a file's bytes, or zero if the file could not be read.
type content [sha256.Size]byte

// NewFileWatcher returns a watcher that calls onChange from the goroutine that runs Start.
func NewFileWatcher(logger logr.Logger, onChange func(path string)) *FileWatcher {
	w := &FileWatcher{log: logger, onChange: onChange, poke: make(chan struct{}, 1)}
	w.locked.contents = map[string]content{}
	return w
}

// Add watches an absolute path, which need not exist. It reads the file: later content is compared with this content.
func (w *FileWatcher) Add(path string) {
	seen := contentOf(path)
	w.mu.Lock()
	if _, ok := w.locked.contents[path]; !ok {
		w.locked.contents[path] = seen
	}
	w.mu.Unlock()
	w.wake()
}

// Remove stops watching a path.
func (w *FileWatcher) Remove(path string) {
	w.mu.Lock()
	delete(w.locked.contents, path)
	w.mu.Unlock()
	w.wake()
}

func (w *FileWatcher) wake() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// Start watches until the context ends.
func (w *FileWatcher) Start(ctx context.Context) error {
	kernel, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch kubeconfig files: %w", err)
	}
	defer kernel.Close()
	directories := map[string]bool{}
	var settled <-chan time.Time
	for {
		w.follow(kernel, directories)
		w.compare()
		select {
		case <-ctx.Done():
			return nil
		case <-w.poke:
		case <-settled:
			for directory := range directories {
				w.unwatch(kernel, directories, directory)
			}
		case event := <-kernel.Events:
			w.forget(kernel, directories, event)
			settled = time.After(settleTime)
		case err := <-kernel.Errors:
			// A full queue has lost events, so follow and compare check everything.
			w.log.Error(err, "Watching kubeconfig files")
		}
	}
}

// NeedLeaderElection returns false, because every replica watches its own files.
func (w *FileWatcher) NeedLeaderElection() bool { return false }

// follow watches the directories that decide about the paths, and no others. It watches first and then looks, and
// repeats that until it finds no new directory. So a change between the two is an event.
func (w *FileWatcher) follow(kernel *fsnotify.Watcher, watched map[string]bool) {
	wanted := map[string]bool{}
	for fresh := true; fresh; {
		fresh = false
		clear(wanted)
		for _, path := range w.paths() {
			for _, directory := range deciding(path) {
				wanted[directory] = true
			}
		}
		for directory := range wanted {
			if watched[directory] {
				continue
			}
			if err := kernel.Add(directory); err != nil {
				w.log.V(1).Info("Directory cannot be watched", "directory", directory, "reason", err.Error())
				continue
			}
			watched[directory], fresh = true, true
		}
	}
	for directory := range watched {
		if !wanted[directory] {
			w.unwatch(kernel, watched, directory)
		}
	}
}

// forget drops the watch of a directory that was replaced, so that follow watches the new directory.
func (w *FileWatcher) forget(kernel *fsnotify.Watcher, watched map[string]bool, event fsnotify.Event) {
	if event.Has(fsnotify.Create) || event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
		if watched[event.Name] {
			w.unwatch(kernel, watched, event.Name)
		}
	}
}

func (w *FileWatcher) unwatch(kernel *fsnotify.Watcher, watched map[string]bool, directory string) {
	delete(watched, directory)
	if err := kernel.Remove(directory); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) {
		w.log.V(1).Info("Directory cannot be unwatched", "directory", directory, "reason", err.Error())
	}
}

// compare reports the paths whose content has changed.
func (w *FileWatcher) compare() {
	for _, path := range w.paths() {
		now := contentOf(path)
		w.mu.Lock()
		before, ok := w.locked.contents[path]
		changed := ok && before != now
		if changed {
			w.locked.contents[path] = now
		}
		w.mu.Unlock()
		if changed {
			w.onChange(path)
		}
	}
}

func (w *FileWatcher) paths() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	paths := make([]string, 0, len(w.locked.contents))
	for path := range w.locked.contents {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	return paths
}

func contentOf(path string) content {
	data, err := readFile(path)
	if err != nil {
		return content{}
	}
	return sha256.Sum256(data)
}

// deciding returns the directories in which a change can make path mean another file: the directories of the file and
// of every symlink on the way, with their parents, as far as they exist.
func deciding(path string) []string {
	const maxLinks = 40
	var directories []string
	add := func(directory string) {
		for _, d := range []string{directory, filepath.Dir(directory)} {
			if !slices.Contains(directories, d) {
				directories = append(directories, d)
			}
		}
	}
	current, rest := "/", components(path)
	for links := 0; len(rest) > 0 && links < maxLinks; {
		next := filepath.Join(current, rest[0])
		kind, target := inspect(next)
		switch kind {
		case missing:
			add(current)
			return directories
		case symlink:
			add(current)
			links++
			if filepath.IsAbs(target) {
				current = "/"
			}
			rest = append(components(target), rest[1:]...)
		case directoryOrFile:
			if len(rest) == 1 {
				add(current)
			}
			current, rest = next, rest[1:]
		}
	}
	return directories
}
