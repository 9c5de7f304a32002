# frozen_string_literal: true

require 'erb'
require 'json'
require 'tmpdir'
require 'yaml'
require 'puppet'
require 'puppet/pops'

module PuppetX
  module Tutti
    # Checks the code of an environment before it is pushed: the syntax of its files, the modules that are missing, and names of
    # classes and resource types that nothing defines. It compiles nothing and runs no code of the environment, except for the
    # files that define resource types, as each compile does.
    class CodeCheck
      # One problem on one line of standard output, as JSON. Errors stop a push; a warning may be meant.
      Problem = Struct.new(:level, :file, :line, :message)

      INCLUDES = %w[include contain require].freeze

      # The arguments are the environment's directory, and directories of modules that the nodes have besides it.
      def self.start(dir, *more)
        out = $stdout.dup
        $stdout.reopen($stderr) # a type may print something when Puppet loads it
        new(dir, more).run.each { |p| out.puts JSON.generate(level: p.level, file: p.file, line: p.line, message: p.message) }
      end

      def initialize(dir, more = [])
        @dir = File.realpath(dir)
        @more = more
        @problems = []
        @classes = {}
        @defines = {}
        @uses = []
        @broken = {}
      end

      def run
        Dir.mktmpdir('tutti-check') do |scratch|
          with_environment(scratch) do |environment|
            check_files(environment)
            check_dependencies(environment)
            check_names(environment)
          end
        end
        @problems.sort_by { |p| [p.file, p.line || 0, p.message] }
      end

      private

      def with_environment(scratch)
        environments = File.join(scratch, 'environments')
        Dir.mkdir(environments)
        @root = File.join(environments, 'checked') # Puppet compares the paths of files with this one
        File.symlink(@dir, @root)
        own = File.expand_path('../../../..', __dir__)
        Puppet.initialize_settings(
          ['--confdir', scratch, '--vardir', scratch, '--environmentpath', environments, '--environment', 'checked', '--basemodulepath',
           [own, *@more].join(File::PATH_SEPARATOR)]
        )
        Puppet::Util::Log.level = :crit
        environment = Puppet.lookup(:environments).get!('checked')
        loaders = Puppet::Pops::Loaders.new(environment)
        Puppet.override(current_environment: environment, loaders: loaders) { yield environment }
      end

      def report(level, file, line, message)
        return unless inside?(file) # the other modules are not this environment's

        name = file[(@root.length + 1)..]
        message = message.to_s.gsub("#{@root}/", '').gsub(/\s+/, ' ').strip[0, 500]
        @problems << Problem.new(level, name, line, message)
      end

      # The directories of the environment's own modules. Puppet 8 leaves a module out whose metadata.json it cannot read.
      def trees(environment)
        environment.modulepath.select { |path| inside?(path) }.flat_map do |path|
          Dir.children(path).grep(/\A[a-z][a-z0-9_]*\z/).sort.map { |name| File.join(path, name) }.select { |dir| File.directory?(dir) }
        end
      end

      def inside?(path)
        path.to_s.start_with?("#{@root}/")
      end

      def check_files(environment)
        trees(environment).each { |path| check_tree(path, true) }
        files(@root, 'manifests').each { |f| check_file(f, false) }
        %w[data hieradata].each { |d| files(@root, d).each { |f| check_file(f, false) } }
        hiera = File.join(@root, 'hiera.yaml')
        check_file(hiera, false) if File.file?(hiera)
        others = environment.modules.reject { |m| inside?(m.path) } # they define classes, too
        others.each { |m| files(m.path, 'manifests').each { |f| manifest(f, true) if f.end_with?('.pp') } }
      end

      def check_tree(path, in_module)
        %w[manifests functions types templates lib data].each { |d| files(path, d).each { |f| check_file(f, in_module) } }
        %w[metadata.json hiera.yaml].each do |name|
          file = File.join(path, name)
          check_file(file, in_module) if File.file?(file)
        end
      end

      def files(path, below)
        Dir.glob(File.join(path, below, '**', '*'), File::FNM_DOTMATCH).select { |f| File.file?(f) }
      end

      def check_file(file, in_module)
        case File.extname(file)
        when '.pp' then manifest(file, in_module)
        when '.epp' then parse(file, Puppet::Pops::Parser::EvaluatingParser::EvaluatingEppParser.new)
        when '.erb' then ruby(file, ERB.new(text(file), trim_mode: '-').src)
        when '.rb' then ruby(file, text(file))
        when '.yaml', '.yml' then YAML.parse(text(file), filename: file)
        when '.json' then JSON.parse(text(file))
        end
      rescue Psych::SyntaxError => e
        report(:error, file, e.line, e.message.sub(/\A\([^)]*\): /, ''))
      rescue JSON::ParserError => e
        report(:error, file, nil, "not JSON: #{e.message}")
      rescue ArgumentError, SystemCallError => e
        report(:error, file, nil, e.message)
      end

      def text(file)
        File.read(file, encoding: 'UTF-8').tap do |content|
          raise ArgumentError, 'the file is not UTF-8' unless content.valid_encoding?
        end
      end

      def ruby(file, source)
        RubyVM::InstructionSequence.compile(source, file)
      rescue SyntaxError => e
        line = e.message[/:(\d+): /, 1]
        report(:error, file, line&.to_i, e.message.lines.first.to_s.sub(/\A.*?:\d+: /, ''))
      end

      def parse(file, parser = Puppet::Pops::Parser::EvaluatingParser.new)
        parser.parse_string(text(file), file)
      rescue Puppet::ParseErrorWithIssue, Puppet::ParseError => e
        report(:error, file, e.line, e.respond_to?(:basic_message) ? e.basic_message : e.message)
        nil
      end

      def manifest(file, in_module)
        model = parse(file)
        return @broken[file[%r{/([^/]+)/manifests/}, 1]] = true unless model

        each_part(model) do |part|
          case part
          when Puppet::Pops::Model::HostClassDefinition
            @classes[part.name] = true
            use(:class, part.parent_class, file, part, in_module) if part.parent_class
          when Puppet::Pops::Model::ResourceTypeDefinition then @defines[part.name] = true
          when Puppet::Pops::Model::CallNamedFunctionExpression then call(part, file, in_module)
          when Puppet::Pops::Model::ResourceExpression then resource(part, file, in_module)
          end
        end
      end

      def each_part(model, &block)
        yield model
        model._pcore_all_contents([]) { |part| block.call(part) }
      end

      def call(part, file, in_module)
        return unless part.functor_expr.is_a?(Puppet::Pops::Model::QualifiedName) && INCLUDES.include?(part.functor_expr.value)

        part.arguments.flat_map { |a| a.is_a?(Puppet::Pops::Model::LiteralList) ? a.values : [a] }.each { |a| use(:class, constant(a), file, a, in_module) }
      end

      def resource(part, file, in_module)
        type = part.type_name
        return unless type.is_a?(Puppet::Pops::Model::QualifiedName)
        return use(:type, type.value, file, part, in_module) unless type.value == 'class'

        part.bodies.each do |body|
          titles = body.title.is_a?(Puppet::Pops::Model::LiteralList) ? body.title.values : [body.title]
          titles.each { |t| use(:class, constant(t), file, t, in_module) }
        end
      end

      def constant(expression)
        case expression
        when Puppet::Pops::Model::LiteralString, Puppet::Pops::Model::QualifiedName then expression.value
        end
      end

      def use(kind, name, file, part, in_module)
        @uses << [kind, name.sub(/\A::/, '').downcase, file, line_of(part), in_module] if name
      end

      def line_of(part)
        part.respond_to?(:line) ? part.line : nil
      end

      # Puppet itself compares the modules with what their metadata.json says.
      def check_dependencies(environment)
        trees(environment).each { |path| check_fields(File.join(path, 'metadata.json')) }
        environment.modules.each do |m|
          next unless inside?(m.path)

          m.unmet_dependencies.each do |d|
            what = "module #{m.name} needs #{d[:name]} #{d[:version_constraint]}".strip
            is = d[:reason] == :missing ? 'which is not there' : "and there is #{d[:mod_details][:installed_version] || 'another version'}"
            report(d[:reason] == :missing ? :error : :warning, File.join(m.path, 'metadata.json'), nil, "#{what}, #{is}")
          end
        rescue Puppet::Module::Error, Puppet::Error, ArgumentError => e
          report(:error, File.join(m.path, 'metadata.json'), nil, e.message)
        end
      end

      # Puppet ignores the dependencies of a module whose metadata.json lacks one of these fields.
      FIELDS = %w[name author version source license].freeze

      def check_fields(file)
        return unless File.file?(file)

        found = JSON.parse(File.read(file))
        missing = FIELDS.reject { |name| found[name].is_a?(String) && !found[name].empty? }
        report(:warning, file, nil, "the metadata lack #{missing.join(', ')}, so Puppet does not see what the module needs") unless missing.empty?
      rescue JSON::ParserError, TypeError
        nil # another check reports it
      end

      # A name is wrong if its module is there and does not define it. If the module is not there, a module may name it for the case
      # that it is; a manifest of the environment may not.
      def check_names(environment)
        modules = (environment.modules.map(&:name) + trees(environment).map { |path| File.basename(path) }).to_h { |name| [name, true] }
        @uses.each do |kind, name, file, line, in_module|
          next if kind == :class ? @classes[name] : @defines[name] || native(name)

          top = name.split('::').first
          next if @broken[top] # the file that does not parse may define it

          level = in_module && !modules[top] ? :warning : :error
          word = kind == :class ? 'class' : 'resource type'
          hint = modules[top] || (kind == :type && !name.include?('::')) ? '' : "; the module #{top} is not there"
          report(level, file, line, "nothing defines the #{word} #{name}#{hint}")
        end
      end

      def native(name)
        !name.include?('::') && !Puppet::Type.type(name).nil?
      rescue StandardError, LoadError, SyntaxError => e
        @problems << Problem.new(:warning, "type #{name}", nil, "the type cannot be loaded: #{e.message}"[0, 500])
        true
      end
    end
  end
end
