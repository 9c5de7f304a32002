# frozen_string_literal: true

require 'facter'

module PuppetX
  module Tutti
    # This class finds what the files of facts change in a process, apart from the facts themselves. If another
    # process collected the facts, this process lacks these changes. Libraries that the files require, and
    # definitions inside of Facter, are ignored. The files may define methods outside of any class, like the files
    # of puppetlabs-apt. Another process can borrow these methods: the first call of a method there loads the
    # method's file.
    class FactLeavings
      CORE = [Object, Kernel, Module, Comparable, Enumerable, String, Symbol, Regexp, Numeric, Integer, Float, Array, Hash, Range, Struct, Proc, NilClass,
              Exception, IO, File, Dir, Time, Process, Encoding].freeze

      # Runs the block and watches it.
      # @return [Array] a text about the first change that a file of a fact has made, or nil; and the file of each
      #   method that another process can borrow
      def self.of(&block)
        new.of(&block)
      end

      # Defines a method that loads its file when it is called for the first time.
      def self.lend(name, path)
        Object.class_eval do
          define_method(name) do |*all, &block|
            Object.__send__(:remove_method, name)
            load path
            __send__(name, *all, &block)
          end
          ruby2_keywords name
          private name
        end
      end

      def of
        constants = Object.constants
        globals = global_variables
        methods = methods_of_core
        @read = []
        @opened = []
        traces.each(&:enable)
        yield
        traces.each(&:disable)
        own, others = (methods_of_core - methods).partition { |one, _, single| one == Object && !single }
        [constant(Object.constants - constants) || opened || method(others) || written(global_variables - globals), lent(own)]
      end

      private

      def traces
        @traces ||= [
          TracePoint.new(:script_compiled) { |trace| @read << trace.instruction_sequence.path },
          TracePoint.new(:class) { |trace| @opened << [trace.self, trace.path] }
        ]
      end

      # Returns whether a file was loaded from a directory of facts, and not with require. A run itself requires the
      # libraries that it needs.
      def fact?(path)
        path&.end_with?('.rb') && @read.include?(path) && !$LOADED_FEATURES.include?(path) && facts?(File.dirname(path))
      end

      def facts?(dir)
        File.basename(dir) == 'facter' || Facter.search_path.any? { |other| File.expand_path(other) == dir }
      end

      def methods_of_core
        CORE.flat_map do |one|
          (one.instance_methods(false) + one.private_instance_methods(false)).map { |name| [one, name, false] } +
            one.singleton_methods(false).map { |name| [one, name, true] }
        end
      end

      def constant(names)
        name = names.find { |one| fact?(Object.const_source_location(one)&.first) }
        "#{short(Object.const_source_location(name).first)} defines #{name}" if name
      end

      def opened
        one, path = @opened.find { |what, file| fact?(file) && what.name && !what.name.match?(/\AFacter(?:::|\z)/) }
        "#{short(path)} extends #{one.name}" if one
      end

      def method(found)
        found.each do |one, name, single|
          path, = (single ? one.method(name) : one.instance_method(name)).source_location
          return "#{short(path)} defines the method #{name} of #{one}" if fact?(path)
        end
        nil
      end

      def lent(found)
        found.to_h { |_, name, _| [name, Object.instance_method(name).source_location&.first] }.select { |_, path| fact?(path) }
      end

      # Ruby does not say which file has set a global variable or a handler, so this method searches the text of the
      # files.
      def written(globals)
        @read.uniq.select { |path| fact?(path) }.each do |path|
          text = File.binread(path)
          name = globals.find { |one| text.include?(one.to_s) } || text[/\bat_exit\b|^\s*END\s*\{/]&.strip
          return "#{short(path)} has #{name}" if name
        end
        nil
      end

      # Returns the part of the path that begins with the module's directory.
      def short(path)
        path[%r{[^/]+/lib/facter/.*}] || path
      end
    end
  end
end
