/**
 * Style sheets without their spaces and comments, which would be part of the bundle. Modules are numbered in
 * their order: numbers by hash, the default, depend on the folder of the build, so that two builds of one
 * commit differ. So are chunks.
 */
module.exports = {
  optimization: { moduleIds: 'natural', chunkIds: 'natural' },
  module: {
    rules: [
      {
        test: /\.css$/,
        enforce: 'pre',
        loader: 'builtin:lightningcss-loader',
        options: { minify: true }
      }
    ]
  }
};
