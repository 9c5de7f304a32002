# frozen_string_literal: true

require 'digest'
require 'puppet'
require 'puppet/file_serving/configuration'
require 'puppet/indirector/request'

module PuppetX
  module Tutti
    # This class reads content that is not in the catalog but decides the effect of the catalog. Examples are files
    # that the catalog names, and code that Puppet loads while it applies the catalog. The digests do not depend on
    # the directory of the code. The class reads each file once. The class has no cache that could be out of date.
    class Content
      # These words stand for the content of directories that link to each other, and of missing
      # files.
      LOOP = 'loop'
      ABSENT = 'absent'

      # @param environment [Puppet::Node::Environment]
      def initialize(environment)
        @environment = environment
        @known = {}
      end

      # @param uris [Array<String>] `puppet:` addresses, all alternatives
      # @param texts [Array<String>] strings that may contain paths of files in the code, for example from find_file()
      # @return [String, nil] the digest of their content, or nil if the content is unknown.
      #   The content is unknown for a mount other than `modules`, for another server, and for an unreadable file.
      def sources(uris, texts = [])
        named = uris.uniq.sort.map { |uri| [uri, of(path(uri))] }
        listed((named + places(texts)).map { |entry| [entry] }) { |entry| entry }
      rescue SystemCallError, ArgumentError
        nil
      end

      # Returns the digests by their names, so that two compiles can be compared.
      # @return [Hash, nil] the digest of the content of each address, and of each directory that a text names; nil if
      #   the content is unknown
      def named(uris, texts = [])
        uris.uniq.sort.to_h { |uri| [uri, of(path(uri))] }
            .merge(places(texts).to_h { |_, name, digest| ["files in #{name.empty? ? 'the code' : name}", digest] })
      rescue SystemCallError, ArgumentError
        nil
      end

      # @return [String, nil] the digest of lib/ and facts.d/ of all modules on the modulepath
      def lib
        roots = @environment.modulepath.each_with_index.flat_map do |dir, index|
          Dir.children(dir).sort.product(%w[lib facts.d]).map { |name, part| [index.to_s, name, part, File.join(dir, name, part)] }
        end
        listed(roots.select { |root| File.directory?(root.last) }) { |*label, path| [*label, of(path)] }
      rescue SystemCallError
        nil
      end

      private

      # Returns the files that texts name below the directories of the code. If a text names a file in a module,
      # the digest covers the whole module, because a script may read files next to itself.
      def places(texts)
        roots.each_with_index.flat_map do |root, index|
          names = texts.flat_map { |text| text.b.scan(%r{#{Regexp.escape(root.b)}(?:/+([\w.-]+)|(?![\w.-]))}n).flatten }.uniq
          names = [nil] if names.include?(nil) # a text names the whole root
          names.reject { |name| name && roots.include?(File.join(root, name)) }.sort_by(&:to_s).map do |name|
            [index.to_s, name.to_s, of(File.join(*[root, name].compact))]
          end
        end
      end

      # Returns the directories of the modules and of the environment.
      def roots
        @roots ||= [*@environment.modulepath, @environment.configuration&.path_to_env].compact.map { |dir| dir.to_s.chomp('/') }.uniq
      end

      # Returns the path to which an address leads on this node. The path is nil if the module has no such file.
      def path(uri)
        request = Puppet::Indirector::Request.new(:file_metadata, :find, uri, nil, environment: @environment)
        mount, path = Puppet::FileServing::Configuration.configuration.split_path(request)
        unless request.server.nil? && mount.instance_of?(Puppet::FileServing::Mount::Modules) && path
          raise ArgumentError, "nobody knows here what #{uri} leads to"
        end

        mount.find(path, request)
      end

      # @param linked [Boolean] false if no part of the path is a link
      def of(path, linked: true)
        return ABSENT if path.nil?

        real = linked ? File.realpath(path) : path
        return @known[real] if @known.key?(real)

        stat = File.stat(real)
        @known[real] = LOOP
        @known[real] = read(real, stat)
      rescue Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP
        ABSENT
      end

      def read(path, stat)
        return listed([[stat.ftype, stat.mode.to_s(8), Digest::SHA256.file(path).hexdigest]]) if stat.file?
        return stat.ftype unless stat.directory?

        listed(Dir.children(path).sort) do |name|
          inner = File.join(path, name)
          link = File.symlink?(inner) ? File.readlink(inner) : ''
          [name, link, of(inner, linked: !link.empty?)]
        end
      end

      # Returns the digest of a list of lists of strings. The block makes the inner lists.
      def listed(items)
        sum = Digest::SHA256.new
        items.each do |item|
          fields = block_given? ? yield(*item) : item
          sum << "#{fields.length};" << fields.map { |field| "#{field.bytesize}:#{field}".b }.join
        end
        "sha256:#{sum.hexdigest}"
      end
    end
  end
end
