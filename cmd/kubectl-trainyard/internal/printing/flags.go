// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package printing

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
)

const wide = "wide"

// Flags say how to print.
type Flags struct {
	print     *genericclioptions.PrintFlags
	noHeaders bool
}

// NewFlags returns flags with their defaults.
func NewFlags() *Flags {
	return &Flags{print: genericclioptions.NewPrintFlags("")}
}

// AddTo adds the flags to a command.
func (f *Flags) AddTo(cmd *cobra.Command) {
	f.print.AddFlags(cmd)
	flag := cmd.Flags().Lookup("output")
	flag.Usage = fmt.Sprintf("Output format. One of: (%s).", strings.Join(f.Formats(), ", "))
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "print tables without their header row")
}

// Formats returns the values of --output, sorted.
func (f *Flags) Formats() []string {
	formats := append(f.print.AllowedFormats(), wide)
	slices.Sort(formats)
	return slices.Compact(formats)
}

// Check checks the flags before any request to a cluster.
func (f *Flags) Check() error {
	if f.ForPeople() {
		return nil
	}
	_, err := f.printer()
	return err
}

// ForPeople is true if the output is tables and text, not objects.
func (f *Flags) ForPeople() bool {
	return f.Wide() || *f.print.OutputFormat == "" && *f.print.TemplatePrinterFlags.TemplateArgument == ""
}

// Wide is true if all columns are printed.
func (f *Flags) Wide() bool { return *f.print.OutputFormat == wide }

func (f *Flags) printer() (printers.ResourcePrinter, error) {
	printer, err := f.print.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("unable to match a printer suitable for the output format %q, allowed formats are: %s",
			*f.print.OutputFormat, strings.Join(f.Formats(), ","))
	}
	return printer, err
}

// PrintTable prints a table.
func (f *Flags) PrintTable(out io.Writer, table *metav1.Table) error {
	return printers.NewTablePrinter(printers.PrintOptions{NoHeaders: f.noHeaders, Wide: f.Wide()}).PrintObj(table, out)
}

// PrintObjects prints objects that have their kind set. As kubectl does, several objects or none are a List.
func (f *Flags) PrintObjects(out io.Writer, objects []runtime.Object) error {
	printer, err := f.printer()
	if err != nil {
		return err
	}
	if *f.print.OutputFormat == "name" {
		for _, object := range objects {
			if err := printer.PrintObj(object, out); err != nil {
				return err
			}
		}
		return nil
	}
	if len(objects) == 1 {
		return printer.PrintObj(objects[0], out)
	}
	list, err := listOf(objects)
	if err != nil {
		return err
	}
	return printer.PrintObj(list, out)
}

func listOf(objects []runtime.Object) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""},
	}}
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, fmt.Errorf("convert %T: %w", object, err)
		}
		list.Items = append(list.Items, unstructured.Unstructured{Object: content})
	}
	return list, nil
}
