// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package spelling_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/config"
	"github.com/trainyard/trainyard/test/check"
)

// root is the repository.
const root = "../.."

// TestWordsOfTheCode checks the names of the product's code and of its tests, in all modules, against the words that
// docs/design.md gives up.
func TestWordsOfTheCode(t *testing.T) {
	design, err := os.ReadFile(filepath.Join(root, "docs/design.md"))
	check.Must(t, err)
	paragraph := regexp.MustCompile(`(?s)Names in the code do not use these words.*?\. A test`).FindString(string(design))
	banned := map[string]bool{}
	for _, match := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(paragraph, -1) {
		banned[match[1]] = true
	}
	if len(banned) == 0 {
		t.Fatal("docs/design.md names no words")
	}
	for _, directory := range []string{
		"api", "board", "capacity", "cmd", "controllers", "dispatch", "executionlease", "hack", "internal", "kubeconfigs", "remote", "test",
		"views", "webhooks",
	} {
		err := filepath.WalkDir(filepath.Join(root, directory), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".go") {
				checkWords(t, path, banned)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func checkWords(t *testing.T, path string, banned map[string]bool) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Error(err)
		return
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if name, ok := node.(*ast.Ident); ok {
			for _, word := range wordsOf(name.Name) {
				if banned[word] {
					t.Errorf("%s: the name %s has the word %q: docs/design.md says which word to use", files.Position(name.Pos()), name.Name, word)
				}
			}
		}
		return true
	})
}

var word = regexp.MustCompile(`[A-Z]?[a-z]+`)

// wordsOf splits a name: "firstSighting" has the words "first" and "sighting".
func wordsOf(name string) []string {
	words := word.FindAllString(name, -1)
	for i := range words {
		words[i] = strings.ToLower(words[i])
	}
	return words
}

// TestFilesInDocs checks that the files in documents and package comments exist, and that a file has the functions,
// types and fields that are named after it.
func TestFilesInDocs(t *testing.T) {
	known := map[string][]string{} // The paths of the files of a name.
	var texts []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "_output" || name == "bin" || len(name) > 2 && name[0] == '.'):
			return filepath.SkipDir
		case name == "doc.go", strings.HasSuffix(name, ".md"):
			texts = append(texts, path)
			fallthrough
		default:
			known[name] = append(known[name], path)
		}
		return nil
	})
	check.Must(t, err)
	file := regexp.MustCompile(`[(` + "`" + ` /]([a-z0-9_]+\.go)(?:[^.\w]|$)`)
	for _, path := range texts {
		text, err := os.ReadFile(path)
		check.Must(t, err)
		for _, match := range file.FindAllStringSubmatch(string(text), -1) {
			if known[match[1]] == nil {
				t.Errorf("%s names the file %s, which does not exist", path, match[1])
			}
		}
		for _, match := range placeInDocs.FindAllStringSubmatch(string(text), -1) {
			for _, name := range nameInDocs.FindAllStringSubmatch(match[2], -1) {
				if !declares(t, known[filepath.Base(match[1])], match[1], name[1]) {
					t.Errorf("%s names %s in %s, which does not have it", path, name[1], match[1])
				}
			}
		}
	}
}

var (
	// placeInDocs is a file with names after it: `state.go` `decide`, `decideLive`.
	placeInDocs = regexp.MustCompile("`([a-z0-9_/]+\\.go)`((?:(?:,|, then)?\\s+`\\w+`)+)")
	nameInDocs  = regexp.MustCompile("`(\\w+)`")
)

// declares is true if one of the files, whose path ends with this, declares the name.
func declares(t *testing.T, files []string, path, name string) bool {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^(?:func (?:\([^)]+\) )?|type |var |const |\t)` + name + `\b`)
	return slices.ContainsFunc(files, func(file string) bool {
		if !strings.HasSuffix(filepath.ToSlash(file), "/"+path) {
			return false
		}
		text, err := os.ReadFile(file)
		check.Must(t, err)
		return declaration.Match(text)
	})
}

// TestDefaultsInWords checks that the API types say in words, after "Absent:", or by a default of the CRD, what holds
// if a field is left out.
func TestDefaultsInWords(t *testing.T) {
	worker := &v1alpha1.WorkerCluster{}
	for plural, spec := range map[string]any{
		"dispatchpolicies": new((*v1alpha1.DispatchPolicy)(nil).Rules()),
		"workerclusters": &v1alpha1.WorkerClusterSpec{Failover: v1alpha1.WorkerFailover{
			GracePeriod: &metav1.Duration{Duration: worker.GracePeriod()}, FenceAfter: &metav1.Duration{Duration: worker.FenceAfter()},
		}},
	} {
		schema, err := config.SpecOf(plural)
		check.Must(t, err)
		defaults, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
		check.Must(t, err)
		checkDefaults(t, plural, schema, defaults)
	}
}

func checkDefaults(t *testing.T, path string, schema *apiextensionsv1.JSONSchemaProps, defaults map[string]any) {
	t.Helper()
	for name, value := range defaults {
		property := schema.Properties[name]
		switch typed := value.(type) {
		case map[string]any:
			checkDefaults(t, path+"."+name, &property, typed)
			continue
		case []any:
			value = typed[0].(map[string]any)["name"]
		}
		_, words, found := strings.Cut(strings.Join(strings.Fields(property.Description), " "), "Absent: ")
		if !found && property.Default != nil {
			words = strings.Trim(string(property.Default.Raw), `"`)
		}
		if !isSaid(fmt.Sprint(value), words) {
			t.Errorf("%s.%s: the default is %v, and the comment or the marker of the field says %q", path, name, value, words)
		}
	}
}

// isSaid is true if words begin with a value. A duration of 0 is "for ever".
func isSaid(value, words string) bool {
	first := strings.TrimRight(strings.Split(words, " ")[0], ".,")
	duration, err := time.ParseDuration(value)
	switch {
	case err != nil:
		return first == value
	case duration == 0:
		return strings.HasPrefix(words, "for ever")
	}
	said, err := time.ParseDuration(first)
	return err == nil && said == duration
}
