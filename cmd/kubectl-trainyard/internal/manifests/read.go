// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Stdin is the file name of standard input.
const Stdin = "-"

// Objects are the objects in some files.
type Objects struct {
	scheme *runtime.Scheme
	items  []Object
	// Ignored says what else is in the files, one line each.
	Ignored []string
}

// Object is an object of a file.
type Object struct {
	client.Object
	// At is its position in the files, for messages.
	At string
}

// Read reads the objects of files, of all files in directories, and of standard input. It ignores other kinds, unless
// their group is the group of one of kinds. The error has a line for each fault.
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

// expand returns the file, or the files of the directory that kubectl would read.
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

// file reads all documents of a file. Its error is about the whole file.
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
	// As in kubectl: UTF-16 with a byte order mark, which PowerShell writes, is text too.
	in = transform.NewReader(in, unicode.BOMOverride(unicode.UTF8.NewDecoder()))
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
			continue // For instance before the first "---". It is not counted.
		}
		for _, value := range values(document) {
			r.document(fmt.Sprintf("%s: document %d", name, number), value)
			number++
		}
	}
}

// values returns the JSON values of a document, which may follow each other without a separator. A document that is no
// JSON is one value.
func values(document []byte) [][]byte {
	if !utilyaml.IsJSONBuffer(document) {
		return [][]byte{document}
	}
	var all [][]byte
	for decoder := json.NewDecoder(bytes.NewReader(document)); ; {
		var value json.RawMessage
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return all
		} else if err != nil { // YAML may begin with a brace too, and its parser explains what is wrong.
			return [][]byte{document}
		}
		all = append(all, value)
	}
}

// isEmpty is true for a document that has only comments and blank lines.
func isEmpty(document []byte) bool {
	for line := range bytes.Lines(document) {
		if text := bytes.TrimSpace(line); len(text) > 0 && text[0] != '#' && !bytes.Equal(text, []byte("---")) {
			return false
		}
	}
	return true
}
