// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfigs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"

	"github.com/trainyard/trainyard/test/check"
)

// watch runs a FileWatcher on path and returns its reports.
func watch(t *testing.T, path string) <-chan string {
	t.Helper()
	changes := make(chan string, 100)
	w := NewFileWatcher(logr.Discard(), func(path string) { changes <- path })
	w.Add(path)
	done := make(chan error, 1)
	go func() { done <- w.Start(t.Context()) }()
	t.Cleanup(func() { check.Must(t, <-done) })
	return changes
}

func write(t *testing.T, path, data string) {
	t.Helper()
	check.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	check.Must(t, os.WriteFile(path, []byte(data), 0o600))
}

func do(t *testing.T, err error) {
	t.Helper()
	check.Must(t, err)
}

// mount writes a version of a volume as the kubelet does: it makes a new directory, and then moves ..data to it.
func mount(t *testing.T, volume string, version int) {
	t.Helper()
	directory := fmt.Sprintf("..2026_%02d", version)
	write(t, filepath.Join(volume, directory, "kubeconfig"), fmt.Sprint("version ", version))
	data, fresh := filepath.Join(volume, "..data"), filepath.Join(volume, "..data_tmp")
	old, _ := os.Readlink(data)
	do(t, os.Symlink(directory, fresh))
	do(t, os.Rename(fresh, data))
	if old != "" {
		do(t, os.RemoveAll(filepath.Join(volume, old)))
	}
}

// TestFileWatcher makes each change ten times, because a typical bug reports only the first change.
func TestFileWatcher(t *testing.T) {
	cases := map[string]struct {
		reason string
		// begin makes the first version under directory and returns the path to watch.
		begin func(t *testing.T, directory string) string
		// change makes version n. Each call changes the content once or twice.
		change func(t *testing.T, directory string, n int)
	}{
		"Write": {
			reason: "A file that is written in place.",
			begin: func(t *testing.T, directory string) string {
				write(t, directory+"/kubeconfig", "")
				return directory + "/kubeconfig"
			},
			change: func(t *testing.T, directory string, n int) { write(t, directory+"/kubeconfig", fmt.Sprint(n)) },
		},
		"Rename": {
			reason: "A file that is replaced, as editors do.",
			begin: func(t *testing.T, directory string) string {
				write(t, directory+"/kubeconfig", "")
				return directory + "/kubeconfig"
			},
			change: func(t *testing.T, directory string, n int) {
				write(t, directory+"/new", fmt.Sprint(n))
				do(t, os.Rename(directory+"/new", directory+"/kubeconfig"))
			},
		},
		"MountedSecret": {
			reason: "The kubelet moves ..data, and no event names the file.",
			begin: func(t *testing.T, directory string) string {
				mount(t, directory, 0)
				do(t, os.Symlink("..data/kubeconfig", directory+"/kubeconfig"))
				return directory + "/kubeconfig"
			},
			change: func(t *testing.T, directory string, n int) { mount(t, directory, n) },
		},
		"SymlinkToMountedSecret": {
			reason: "Two symlinks on the way, in two directories.",
			begin: func(t *testing.T, directory string) string {
				mount(t, directory+"/volume", 0)
				do(t, os.Symlink("..data/kubeconfig", directory+"/volume/kubeconfig"))
				do(t, os.Symlink(directory+"/volume", directory+"/link"))
				return directory + "/link/kubeconfig"
			},
			change: func(t *testing.T, directory string, n int) { mount(t, directory+"/volume", n) },
		},
		"SymlinkMoved": {
			reason: "The symlink is in another directory than the files to which it points.",
			begin: func(t *testing.T, directory string) string {
				write(t, directory+"/files/of/0", "0")
				do(t, os.Mkdir(directory+"/links", 0o700))
				do(t, os.Symlink(directory+"/files/of/0", directory+"/links/kubeconfig"))
				return directory + "/links/kubeconfig"
			},
			change: func(t *testing.T, directory string, n int) {
				target := fmt.Sprint(directory, "/files/of/", n)
				write(t, target, fmt.Sprint(n))
				do(t, os.Symlink(target, directory+"/links/new"))
				do(t, os.Rename(directory+"/links/new", directory+"/links/kubeconfig"))
			},
		},
		"Recreated": {
			reason: "The file goes and comes back.",
			begin: func(t *testing.T, directory string) string {
				write(t, directory+"/kubeconfig", "")
				return directory + "/kubeconfig"
			},
			change: func(t *testing.T, directory string, n int) {
				do(t, os.Remove(directory+"/kubeconfig"))
				write(t, directory+"/kubeconfig", fmt.Sprint(n))
			},
		},
		"DirectoryRecreated": {
			reason: "The kernel's watch goes with the directory.",
			begin: func(t *testing.T, directory string) string {
				write(t, directory+"/a/b/kubeconfig", "")
				return directory + "/a/b/kubeconfig"
			},
			change: func(t *testing.T, directory string, n int) {
				if n%2 == 1 {
					do(t, os.RemoveAll(directory+"/a"))
				}
				write(t, directory+"/a/b/kubeconfig", fmt.Sprint(n))
			},
		},
		"DirectoryReplaced": {
			reason: "The watched directory moves away and another takes its name.",
			begin: func(t *testing.T, directory string) string {
				write(t, directory+"/a/kubeconfig", "")
				return directory + "/a/kubeconfig"
			},
			change: func(t *testing.T, directory string, n int) {
				if n%2 == 0 {
					// The new directory must be watched like the old one.
					write(t, directory+"/a/kubeconfig", fmt.Sprint(n))
					return
				}
				write(t, directory+"/b/kubeconfig", fmt.Sprint(n))
				do(t, os.Rename(directory+"/a", fmt.Sprint(directory, "/old-", n)))
				do(t, os.Rename(directory+"/b", directory+"/a"))
			},
		},
		"AppearsLate": {
			reason: "Neither file nor directory is there at the start.",
			begin:  func(_ *testing.T, directory string) string { return directory + "/x/y/kubeconfig" },
			change: func(t *testing.T, directory string, n int) { write(t, directory+"/x/y/kubeconfig", fmt.Sprint(n)) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gomega.NewWithT(t)
			directory := t.TempDir()
			path := tc.begin(t, directory)
			changes := watch(t, path)
			for n := 1; n <= 10; n++ {
				tc.change(t, directory, n)
				want := contentOf(path)
				// A change in two steps can be reported twice, so wait for the report of the new content.
				g.Eventually(changes, 10*time.Second).Should(gomega.Receive(gomega.Equal(path)), "%s Change %d is not seen.", tc.reason, n)
				if got := contentOf(path); got != want {
					t.Fatalf("%s The test changes more than it says.", tc.reason)
				}
				settle(t, changes)
			}
		})
	}
}

// settle reads more reports of the same change, if there are any.
func settle(t *testing.T, changes <-chan string) {
	t.Helper()
	for {
		select {
		case <-changes:
		case <-time.After(20 * time.Millisecond):
			return
		}
	}
}

// TestFileWatcherSameContent checks that events without changed content and removed paths are not reported.
func TestFileWatcherSameContent(t *testing.T) {
	g := gomega.NewWithT(t)
	directory := t.TempDir()
	first, second := filepath.Join(directory, "first"), filepath.Join(directory, "second")
	write(t, first, "same")
	write(t, second, "0")
	changes := make(chan string, 100)
	w := NewFileWatcher(logr.Discard(), func(path string) { changes <- path })
	w.Add(first)
	w.Add(second)
	done := make(chan error, 1)
	go func() { done <- w.Start(t.Context()) }()

	write(t, first, "same")
	write(t, second, "1")
	g.Eventually(changes, 10*time.Second).Should(gomega.Receive(gomega.Equal(second)))
	settle(t, changes)

	w.Remove(second)
	write(t, second, "2")
	do(t, os.Remove(first))
	g.Eventually(changes, 10*time.Second).Should(gomega.Receive(gomega.Equal(first)))

	// After the second Add, changes count from the content of now.
	w.Add(second)
	write(t, second, "3")
	g.Eventually(changes, 10*time.Second).Should(gomega.Receive(gomega.Equal(second)))
}
