// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Stdin is the name of standard input as a file.
const Stdin = "-"

// Objects are what is in some files.
type Objects struct {
	scheme *runtime.Scheme
	items  []Object
	// Ignored says what is in the files besides, one line each.
	Ignored []string
}

// Object of a file.
type Object struct {
	client.Object
	// At says where it stands, for messages.
	At string
}

// Read reads the objects of files, of all files in directories, and of standard input. Objects of other kinds are ignored, unless
// their group is one of these. The error has a line for each fault.
func Read(scheme *runtime.Scheme, kinds []schema.GroupVersionKind, stdin io.Reader, paths ...string) (*Objects, error) {
	r := &reader{kinds: kinds, objects: &Objects{scheme: scheme}, decoder: newDecoder(scheme)}
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := r.file(stdin, file); err != nil {
				return nil, err
			}
		}
	}
	return r.objects, r.faults.ErrorOrNil()
}

// expand returns the file, or those of the directory that kubectl would read.
func expand(path string) ([]string, error) {
	if path == Stdin {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("the path %q does not exist", path)
		}
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if ext := filepath.Ext(entry.Name()); !entry.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, ext) {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("the directory %q has no files that end with .json, .yaml or .yml", path)
	}
	return files, nil
}

// reader collects objects and faults.
type reader struct {
	kinds   []schema.GroupVersionKind
	decoder decoder
	objects *Objects
	faults  multierror.Error
}

func (r *reader) fault(at, format string, args ...any) {
	r.faults.ErrorFormat = perLine
	r.faults.Errors = append(r.faults.Errors, fmt.Errorf("%s: %w", at, fmt.Errorf(format, args...)))
}

func perLine(faults []error) string {
	lines := make([]string, len(faults))
	for i, fault := range faults {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// file reads all documents of a file. The error is that of the file as a whole.
func (r *reader) file(stdin io.Reader, path string) error {
	name, in := path, stdin
	if path == Stdin {
		name = "standard input"
	} else {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for number := 1; ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if isEmpty(document) {
			continue // Such as what is before a first "---". It is not counted.
		}
		r.document(fmt.Sprintf("%s: document %d", name, number), document)
		number++
	}
}

// isEmpty is true for a document of comments and blank lines only.
func isEmpty(document []byte) bool {
	for line := range bytes.Lines(document) {
		if text := bytes.TrimSpace(line); len(text) > 0 && text[0] != '#' && !bytes.Equal(text, []byte("---")) {
			return false
		}
	}
	return true
}
