// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"io"
	"strings"

	"github.com/hashicorp/go-multierror"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/trainyard/trainyard/views/simulation"
)

// Read reads what kubectl reads: files, all files of folders, URLs, and "-" for standard input. It ignores kinds that a
// decision does not need, unless they are of a group of which it needs a kind. The error has a line for each fault.
func Read(stdin io.Reader, paths ...string) (*simulation.Files, error) {
	files, faults := &simulation.Files{}, &multierror.Error{ErrorFormat: perLine}
	for _, path := range paths {
		name, builder := path, resource.NewLocalBuilder().Unstructured().ContinueOnError().Flatten()
		if path == "-" {
			name = "standard input"
			// The builder decodes UTF-16 with a byte order mark, which PowerShell writes, in files only.
			builder.Stream(transform.NewReader(stdin, unicode.BOMOverride(unicode.UTF8.NewDecoder())), name)
		} else {
			builder.FilenameParam(false, &resource.FilenameOptions{Filenames: []string{path}})
		}
		err := builder.Do().Visit(func(info *resource.Info, err error) error {
			if err != nil {
				return err
			}
			if err := files.Take(info.Source, info.Object.(*unstructured.Unstructured)); err != nil {
				faults = multierror.Append(faults, err)
			}
			return nil
		})
		if err != nil {
			faults = multierror.Append(faults, fmt.Errorf("read %s: %w", name, err))
		}
	}
	return files, faults.ErrorOrNil()
}

func perLine(faults []error) string {
	lines := make([]string, len(faults))
	for i, fault := range faults {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}
